"""A classifier that goes on learning, for those who have pictures and no experiment in mind."""
