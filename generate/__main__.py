from generate.cli import app

app()
