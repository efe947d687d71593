"""What does a ledger of files keep, and how is it asked?  In the words of SQLite.  Pure."""

TABLES = (
    "CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS entries (first INTEGER PRIMARY KEY, until INTEGER, kind TEXT,"
    " body TEXT)",
    "CREATE TABLE IF NOT EXISTS taken (path TEXT PRIMARY KEY, inode INTEGER, size INTEGER,"
    " modified INTEGER, changed INTEGER, digest TEXT, rows INTEGER, part TEXT, at REAL,"
    " sweep INTEGER, shard TEXT, first INTEGER, late INTEGER) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS taken_by_inode ON taken (inode)",
    "CREATE INDEX IF NOT EXISTS taken_by_first ON taken (first)",
    "CREATE INDEX IF NOT EXISTS taken_late ON taken (at) WHERE late",
    "CREATE TABLE IF NOT EXISTS waiting (path TEXT PRIMARY KEY, inode INTEGER, size INTEGER,"
    " modified INTEGER, changed INTEGER, first INTEGER, since REAL, why TEXT, told INTEGER,"
    " part TEXT, looked INTEGER, seen REAL) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS waiting_by_inode ON waiting (inode)",
    "CREATE INDEX IF NOT EXISTS waiting_unheard_of ON waiting (first) WHERE NOT told",
    "CREATE TABLE IF NOT EXISTS rewritten (path TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS columns (shard TEXT PRIMARY KEY, body TEXT) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS hours_left (part TEXT PRIMARY KEY, changed INTEGER,"
    " newest INTEGER) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS own_disks (log TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS beats (sweep INTEGER PRIMARY KEY, n INTEGER)",
)
KEEPS_SEEN = "SELECT 1 FROM pragma_table_info('waiting') WHERE name = 'seen'"
KEEP_SEEN = "ALTER TABLE waiting ADD COLUMN seen REAL"  # those of before lack it
_KNOWN = (
    "SELECT path, inode, size, modified, changed, digest, rows, path IN rewritten FROM taken WHERE "
)
_WAITS = (
    "SELECT path, inode, size, modified, changed, first, since, why, told, seen FROM waiting WHERE "
)
_PATHS = "path IN (SELECT value FROM json_each(?))"
TAKEN, WAITING, UNSEEN = f"{_KNOWN}{_PATHS}", f"{_WAITS}{_PATHS}", f"{_WAITS}looked < ?"
FIRSTS = (
    "SELECT inode, MIN(first) FROM waiting WHERE NOT told AND inode IN"
    " (SELECT value FROM json_each(?)) GROUP BY inode"
)
RESTLESS = (
    "SELECT COUNT(*), path, MIN(seen) FROM waiting WHERE NOT told AND since > seen AND seen <= ?"
)
BY_INODE = f"{_KNOWN}inode = ? AND substr(path, 1, length(?)) = ? ORDER BY rows = 0, path"
ROWS = (
    "SELECT shard, part, COUNT(*), SUM(rows), SUM(CASE WHEN late THEN rows ELSE 0 END), MIN(at),"
    " MAX(at) FROM taken WHERE {} GROUP BY shard, part ORDER BY shard, part"
)
BETWEEN, LATE = ROWS.format("first >= ? AND first < ? AND rows"), ROWS.format("late AND at >= ?")
