"""What torchport knows about other people's software, as data: TOML files and the types they are read into."""
