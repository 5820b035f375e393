from support.tools import promtool

__all__ = ["promtool"]
