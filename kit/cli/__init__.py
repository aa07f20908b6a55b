"""The `kit` command: parse, call the library, show the result. No logic lives here."""
