"""The admin page: static files, served by `gateway/api/admin/page.py`."""
