"""One short file for each method; conversion is shared by all."""
