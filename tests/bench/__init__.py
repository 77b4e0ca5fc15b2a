"""Programs that measure. They print; nothing here passes or fails by a time."""
