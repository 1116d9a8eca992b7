"""Tables, pictures and one page of runs, made from run folders alone."""
