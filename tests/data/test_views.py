import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from promptpool.data.decoding import decode
from promptpool.data.views import RANGES, ImageView, resample

AUGMENTED = ImageView(12, crop=(0.05, 1.0), flip=True)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def images(count: int, high: int, wide: int, channels: int = 3, seed: int = 0) -> Tensor:
    shape = (count, channels, high, wide)
    return torch.randint(0, 256, shape, generator=generator(seed), dtype=torch.uint8)


def slow_resample(x: Tensor, box: list[float], mirrored: bool, size: int) -> Tensor:
    """One image's box, a target pixel at a time: the mean of the pixels around it under a triangle."""
    _, high, wide = x.shape
    top, left, height, width = box[0] * high, box[1] * wide, box[2] * high, box[3] * wide
    out = torch.zeros(x.shape[0], size, size, dtype=torch.float64)
    for i in range(size):
        for j in range(size):
            row, column = top + (i + 0.5) * height / size, left + (j + 0.5) * width / size
            total = 0.0
            for r in range(high):
                for c in range(wide):
                    down = 1 - abs(r + 0.5 - row) / max(1.0, height / size)
                    across = 1 - abs(c + 0.5 - column) / max(1.0, width / size)
                    weight = max(0.0, down) * max(0.0, across)
                    out[:, i, size - 1 - j if mirrored else j] += weight * x[:, r, c].double()
                    total += weight
            out[:, i, size - 1 - j if mirrored else j] /= total
    return out


@pytest.mark.parametrize("size", [1, 8, 13, 32, 70])
@pytest.mark.parametrize(("high", "wide"), [(1, 1), (8, 8), (32, 32), (33, 17), (20, 61), (5, 64)])
def test_plain_is_torchs_own_interpolation(high: int, wide: int, size: int) -> None:
    x = images(2, high, wide)
    expected = F.interpolate(x.double() / 255, (size, size), mode="bilinear", antialias=True)
    torch.testing.assert_close(ImageView(size).plain(x).double(), expected, atol=5e-7, rtol=0)


def test_the_same_size_changes_nothing() -> None:
    x = images(2, 16, 16)
    torch.testing.assert_close(ImageView(16).plain(x), x.float() / 255)


def test_the_same_size_is_what_the_products_give_to_the_bit() -> None:
    x = torch.randint(0, 256, (3, 3, 20, 20), dtype=torch.uint8)
    box, no, yes = (
        torch.tensor([[0.0, 0.0, 1.0, 1.0]], dtype=torch.float64),
        torch.tensor([False]),
        torch.tensor([True]),
    )
    assert torch.equal(resample(x, box, no, 20), resample(x.flip(3), box, yes, 20))  # only the first is taken as it is


def test_images_of_different_sizes_share_a_view() -> None:
    view = ImageView(10)
    for high, wide in ((3, 40), (10, 10), (64, 21)):
        assert view.plain(images(1, high, wide)).shape == (1, 3, 10, 10)
        assert AUGMENTED(images(1, high, wide), generator()).shape == (1, 3, 12, 12)


def test_inputs_are_not_changed() -> None:
    x = images(3, 9, 9)
    before = x.clone()
    AUGMENTED.plain(x)
    AUGMENTED(x, generator())
    assert torch.equal(x, before)


@pytest.mark.parametrize("view", [ImageView(12), ImageView(12, values="imagenet"), AUGMENTED])
def test_grey_is_equal_red_green_and_blue(view: ImageView) -> None:
    grey = images(2, 9, 14, channels=1)
    assert view.plain(grey).shape == (2, 3, 12, 12)
    torch.testing.assert_close(view.plain(grey), view.plain(grey.repeat(1, 3, 1, 1)))
    torch.testing.assert_close(view(grey, generator()), view(grey.repeat(1, 3, 1, 1), generator()))


def test_ranges() -> None:
    extremes = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).expand(2, 3, 4, 4)
    black, white = ImageView(4).plain(extremes)[:, :, 0, 0]
    assert black.tolist() == [0.0, 0.0, 0.0]
    assert white.tolist() == pytest.approx([1.0, 1.0, 1.0])
    black, white = ImageView(4, values="symmetric").plain(extremes)[:, :, 0, 0]
    assert black.tolist() == [-1.0, -1.0, -1.0]
    assert white.tolist() == pytest.approx([1.0, 1.0, 1.0])
    black, white = ImageView(4, values="imagenet").plain(extremes)[:, :, 0, 0]
    assert black.tolist() == pytest.approx([-0.485 / 0.229, -0.456 / 0.224, -0.406 / 0.225])
    assert white.tolist() == pytest.approx([0.515 / 0.229, 0.544 / 0.224, 0.594 / 0.225])


@pytest.mark.parametrize("name", RANGES)
def test_a_range_may_be_given_by_its_numbers(name: str) -> None:
    x = images(2, 8, 8)
    assert torch.equal(ImageView(6, values=name).plain(x), ImageView(6, values=RANGES[name]).plain(x))


def test_the_training_view_has_the_range_of_the_plain_one() -> None:
    white = torch.full((8, 3, 10, 10), 255, dtype=torch.uint8)
    view = ImageView(6, values="symmetric", crop=(0.1, 0.9), flip=True)
    torch.testing.assert_close(view(white, generator()), torch.ones(8, 3, 6, 6))


@pytest.mark.parametrize("size", [3, 5, 11])
def test_resample_is_a_weighted_mean_written_out(size: int) -> None:
    x = images(3, 7, 9)
    boxes = torch.tensor([[0.0, 0.0, 1.0, 1.0], [0.13, 0.4, 0.71, 0.5], [0.9, 0.0, 0.1, 0.08]], dtype=torch.float64)
    mirrored = torch.tensor([False, True, True])
    actual = resample(x, boxes, mirrored, size)
    for image, box, mirror, result in zip(x, boxes.tolist(), mirrored.tolist(), actual, strict=True):
        expected = slow_resample(image, box, mirror, size).float()
        torch.testing.assert_close(result, expected, atol=2e-4, rtol=0)


@pytest.mark.parametrize("step", [1, 2, 3])
def test_a_crop_on_pixel_borders_is_a_cut_of_the_resized_image(step: int) -> None:
    # With `step` pixels per target pixel, cropping after shrinking the whole is the same as before.
    size, top, left = 4, 2, 3
    x = images(2, 10 * step, 12 * step)
    whole = F.interpolate(x.float(), (10, 12), mode="bilinear", antialias=True)
    box = torch.tensor([[top / 10, left / 12, size / 10, size / 12]], dtype=torch.float64)
    actual = resample(x, box, torch.tensor([False]), size)
    expected = whole[:, :, top : top + size, left : left + size]
    torch.testing.assert_close(actual, expected, atol=2e-4, rtol=0)


def test_an_enlarged_crop_is_a_cut_of_the_enlarged_image() -> None:
    x = images(2, 10, 12)
    whole = F.interpolate(x.float(), (30, 36), mode="bilinear", align_corners=False)
    box = torch.tensor([[2 / 10, 3 / 12, 4 / 10, 4 / 12]], dtype=torch.float64)
    actual = resample(x, box, torch.tensor([False]), 12)
    torch.testing.assert_close(actual, whole[:, :, 6:18, 9:21], atol=2e-4, rtol=0)


def boxes_of(crop: tuple[float, float], high: int, wide: int, count: int = 500, flip: bool = False) -> Tensor:
    """Top, left, height and width in pixels, read off what a view makes of images of their own coordinates.

    The view enlarges, so that a target pixel away from the border shows exactly where it looked.
    A mirrored box starts at its right edge and has a negative width.
    """
    size = 64
    assert max(high, wide) <= size
    x = torch.zeros(count, 3, high, wide, dtype=torch.uint8)
    x[:, 0] = torch.arange(high)[:, None]
    x[:, 1] = torch.arange(wide)
    looked = 255 * ImageView(size, crop=crop, flip=flip)(x, generator()).double() + 0.5
    corners, extents = [], []
    for line in (looked[:, 0, :, size // 2], looked[:, 1, size // 2, :]):
        extent = (line[:, 48] - line[:, 16]) / 32 * size
        corners.append(line[:, 16] - 16.5 / size * extent)
        extents.append(extent)
    return torch.stack(corners + extents, dim=1)


@pytest.mark.parametrize(("high", "wide"), [(40, 40), (48, 32), (32, 48)])
def test_crops_have_the_asked_area_and_shape(high: int, wide: int) -> None:
    least, most = 0.1, 0.5  # so small that even the longest box fits: nothing is cut at the border
    top, left, height, width = boxes_of((least, most), high, wide).unbind(1)
    near = 1e-3
    assert top.min() > -near
    assert left.min() > -near
    assert (top + height).max() < high + near
    assert (left + width).max() < wide + near
    area, shape = height * width / (high * wide), width / height
    assert least - near < area.min() < least + 0.02
    assert most - 0.02 < area.max() < most + near
    assert area.mean().item() == pytest.approx((least + most) / 2, abs=0.02)
    assert 3 / 4 - near < shape.min() < 0.77
    assert 1.31 < shape.max() < 4 / 3 + near
    assert shape.log().mean().item() == pytest.approx(0, abs=0.03)
    for begin, room in ((top, high - height), (left, wide - width)):
        place = begin / room
        assert place.min() < 0.02
        assert place.max() > 0.98
        assert place.mean().item() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("high", "wide"), [(40, 40), (48, 32), (20, 60)])
def test_crops_stay_inside_when_the_border_cuts_them(high: int, wide: int) -> None:
    top, left, height, width = boxes_of((0.8, 1.0), high, wide).unbind(1)
    near = 1e-2
    assert min(top.min(), left.min()) > -near
    assert (top + height).max() < high + near
    assert (left + width).max() < wide + near
    assert (height * width / (high * wide)).max() < 1 + near
    if high == wide:
        assert 3 / 4 - near < (width / height).min()
        assert (width / height).max() < 4 / 3 + near


def test_a_flip_is_a_mirror_about_half_the_time() -> None:
    x = images(4000, 3, 4)
    view = ImageView(4, flip=True)
    plain, seen = view.plain(x), view(x, generator())
    straight = (seen - plain).abs().amax(dim=(1, 2, 3)) < 1e-5
    mirrored = (seen - plain.flip(-1)).abs().amax(dim=(1, 2, 3)) < 1e-5
    assert torch.equal(straight, ~mirrored)
    assert 1874 < int(mirrored.sum()) < 2126  # four deviations of a fair coin


def test_a_flip_does_not_depend_on_the_crop() -> None:
    top, left, height, width = boxes_of((0.1, 0.5), 40, 40, count=2000, flip=True).unbind(1)
    mirrored = (width < 0).double()
    left = torch.where(width < 0, left + width, left)
    drawn = [height * width.abs(), width.abs() / height, top / (40 - height), left / (40 - width.abs())]
    for draw in drawn:
        correlation = torch.corrcoef(torch.stack([mirrored, draw]))[0, 1]
        assert abs(correlation.item()) < 0.09  # four deviations of chance, 1 / sqrt(2000)


def test_without_flip_nothing_is_mirrored() -> None:
    x = torch.arange(10, dtype=torch.uint8).expand(200, 3, 10, 10)
    seen = ImageView(8, crop=(0.2, 0.8))(x, generator())
    assert (seen[..., 1:] >= seen[..., :-1] - 1e-6).all()


@pytest.mark.parametrize("view", [AUGMENTED, ImageView(12, crop=(0.5, 0.5)), ImageView(12, flip=True)])
def test_the_generator_decides(view: ImageView) -> None:
    x = images(16, 20, 15)
    draws = generator(3)
    first, second = view(x, draws), view(x, draws)
    assert torch.equal(first, view(x, generator(3)))
    assert not torch.equal(first, second)
    assert not torch.equal(first, view(x, generator(4)))


def test_the_global_generator_is_left_alone() -> None:
    before = torch.get_rng_state()
    AUGMENTED(images(4, 9, 9), generator())
    assert torch.equal(before, torch.get_rng_state())


def test_each_image_has_a_draw_of_its_own() -> None:
    x = images(1, 20, 20).expand(8, -1, -1, -1)
    seen = AUGMENTED(x, generator())
    assert all(not torch.allclose(seen[0], other) for other in seen[1:])


def test_an_image_does_not_depend_on_its_neighbours() -> None:
    x, others = images(6, 18, 18), images(6, 18, 18, seed=1)
    others[2] = x[2]
    seen = AUGMENTED(x, generator())
    torch.testing.assert_close(AUGMENTED(others, generator())[2], seen[2])
    torch.testing.assert_close(AUGMENTED(x[:3], generator()), seen[:3])
    plain = AUGMENTED.plain(x)
    torch.testing.assert_close(torch.cat([AUGMENTED.plain(image[None]) for image in x]), plain)


@pytest.mark.parametrize("view", [AUGMENTED, ImageView(12, crop=(0.05, 0.1)), ImageView(12, flip=True)])
def test_plain_never_augments(view: ImageView) -> None:
    """Trap 3: CORe50 tested through the training augmentation."""
    x = images(8, 20, 15)
    assert not view.fixed
    before = torch.get_rng_state()
    for _ in range(3):
        assert torch.equal(view.plain(x), ImageView(12).plain(x))
    assert torch.equal(before, torch.get_rng_state())


def test_a_fixed_view_trains_on_what_it_tests() -> None:
    x = images(4, 9, 20)
    view = ImageView(12, values="symmetric")
    assert view.fixed
    assert torch.equal(view(x, generator()), view.plain(x))


def test_bad_values_are_named() -> None:
    with pytest.raises(ValueError, match="size = 0"):
        ImageView(0)
    with pytest.raises(ValueError, match=r"values = 'unti'.*unit, symmetric, imagenet"):
        ImageView(8, values="unti")


@pytest.mark.parametrize("crop", [(0.0, 1.0), (-0.1, 0.5), (0.6, 0.5), (0.5, 1.1), (math.nan, 1.0), (0.5, math.nan)])
def test_bad_crops_are_named(crop: tuple[float, float]) -> None:
    with pytest.raises(ValueError, match="crop = "):
        ImageView(8, crop=crop)


def shorter_side_and_centre(channel: np.ndarray, shorter: int, size: int) -> np.ndarray:
    """What "shorter side to 256, central 224" says, by Pillow, in floats: [size, size]."""
    high, wide = channel.shape
    scale = shorter / min(high, wide)
    high, wide = round(high * scale), round(wide * scale)
    resized = Image.fromarray(channel.astype(np.float32)).resize((wide, high), Image.Resampling.BILINEAR)
    left, top = (wide - size) // 2, (high - size) // 2
    return np.asarray(resized.crop((left, top, left + size, top + size)))


def by_pillow(pixels: np.ndarray, shorter: int = 32, size: int = 28) -> Tensor:
    """The same of an image [3, H, W], between 0 and 1."""
    channels = [shorter_side_and_centre(channel, shorter, size) for channel in pixels]
    return torch.from_numpy(np.stack(channels)) / 255


@pytest.mark.parametrize(("high", "wide"), [(32, 32), (64, 96), (96, 64), (16, 24), (128, 128), (24, 48), (8, 8)])
def test_a_test_crop_is_the_shorter_side_and_a_central_cut(high: int, wide: int) -> None:
    x = images(2, high, wide)
    seen = ImageView(28, test_crop=0.875).plain(x)
    expected = torch.stack([by_pillow(image.numpy()) for image in x])
    torch.testing.assert_close(seen, expected, atol=1e-5, rtol=0)


def test_a_test_crop_of_one_is_the_central_square() -> None:
    x = images(2, 20, 12)
    torch.testing.assert_close(ImageView(12, test_crop=1.0).plain(x), x[:, :, 4:16].float() / 255)
    assert torch.equal(ImageView(12, test_crop=1.0).plain(x[:, :, :12]), ImageView(12).plain(x[:, :, :12]))


def test_without_a_crop_training_looks_where_testing_does() -> None:
    x = images(4, 9, 20)
    view = ImageView(12, test_crop=0.875)
    assert view.fixed
    assert torch.equal(view(x, generator()), view.plain(x))
    mirrored, plain = ImageView(12, flip=True, test_crop=0.875)(x, generator()), view.plain(x)
    for image, seen in zip(plain, mirrored, strict=True):
        assert torch.allclose(seen, image) or torch.allclose(seen, image.flip(-1))


def test_a_test_crop_changes_no_random_crop() -> None:
    x = images(4, 20, 15)
    cut = ImageView(12, crop=(0.05, 1.0), flip=True, test_crop=0.875)
    assert not cut.fixed
    assert torch.equal(cut(x, generator()), AUGMENTED(x, generator()))
    assert torch.equal(cut.plain(x), ImageView(12, test_crop=0.875).plain(x))


@pytest.mark.parametrize(("high", "wide"), [(90, 140), (140, 90), (61, 200), (75, 75)])
def test_a_picture_cut_to_its_centre_and_then_by_the_view_is_the_central_cut(high: int, wide: int) -> None:
    # Colours that rise across the picture: a pixel says where it was.
    rows, columns = np.mgrid[0:high, 0:wide]
    pixels = np.stack([255 * rows / high, 255 * columns / wide, 255 * (rows + columns) / (high + wide)])
    pixels = pixels.astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels.transpose(1, 2, 0)).save(file, "PNG")
    expected, near = by_pillow(pixels), 2.5 / 255  # pixels are rounded twice, and odd rests cut at half pixels
    found = {
        fit: ImageView(28, test_crop=0.875).plain(torch.from_numpy(decode(file.getvalue(), "x.png", 32, fit))[None])[0]
        for fit in ("centre", "whole")
    }
    assert (found["centre"] - expected).abs().max() < near
    assert bool((found["whole"] - expected).abs().max() < near) is (high == wide)


@pytest.mark.parametrize("test_crop", [0.0, -0.5, 1.01, math.nan])
def test_bad_test_crops_are_named(test_crop: float) -> None:
    with pytest.raises(ValueError, match="test_crop = "):
        ImageView(8, test_crop=test_crop)
