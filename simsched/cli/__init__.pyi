from .main import cli as cli
