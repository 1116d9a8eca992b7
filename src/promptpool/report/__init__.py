"""Tables, plots and one page, made from run folders alone; `reproduce` shows its results with the same parts."""
