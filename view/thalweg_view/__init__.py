"""The view: what a cluster is doing, why pods wait and what would help, over HTTP and as a web page.

It reads only. It knows neither where a cluster's state comes from (``ViewSource``) nor who checks the rights of its
callers (``Access``).
"""
