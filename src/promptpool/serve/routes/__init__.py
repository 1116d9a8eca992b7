"""The addresses of the server, by what one wants there."""
