"""Where applications come from: shipped files, a user's, measurements, tables; their physics is in `model`."""
