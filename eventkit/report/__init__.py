"""Sums by the hour as a page: one file of HTML with plots, which fetches nothing and runs nothing."""

from .page import page

__all__ = ["page"]
