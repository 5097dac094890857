"""What cells compute: functions from plain settings and a device to plain numbers. A change here makes cells stale."""
