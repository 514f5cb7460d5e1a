//! What one side may ask of the other, in bytes and counts. Both sides check: the sender so that
//! the error names the cause, the receiver because the sender may be hostile.

/// Largest payload of one frame on a command connection, in bytes. Larger things travel in parts or
/// on bulk lanes.
pub const MAX_FRAME: usize = 16 << 20;

/// Largest copy that travels inside a command or reply, in bytes; above it, bulk lanes carry it.
pub const MAX_INLINE: usize = 64 << 10;

/// Copies of at least so many bytes need no staging memory where an adapter moves them between lent
/// memory and a device's.
pub const UNSTAGED_FROM: u64 = 1 << 20;

/// Most bytes of mapped memory whose sums one answer compares.
pub const MAX_COMPARED: usize = 4 << 20;

/// Largest string in a message, in bytes. Mangled C++ kernel names reach tens of thousands of
/// characters.
pub const MAX_STRING: usize = 256 << 10;

/// Most elements in one sequence of a message.
pub const MAX_ITEMS: usize = 1 << 20;

/// Largest handshake body, in bytes: a hello, or a welcome with its platform snapshot.
pub const MAX_HELLO: usize = 64 << 10;

/// Largest welcome body, in bytes; it holds the platform snapshot of every device.
pub const MAX_WELCOME: usize = 8 << 20;

/// Largest number of bulk lanes one session may attach.
pub const MAX_LANES: usize = 16;

/// Smallest and largest chunk of a bulk transfer, in bytes. The sender of the command chooses
/// within them.
pub const CHUNK_BYTES: core::ops::RangeInclusive<usize> = (64 << 10)..=(8 << 20);

/// Staging memory that the transfers of one session may take in the worker at once, in bytes, both
/// ways together.
pub const STAGING: usize = 256 << 20;

/// The part of it for transfers towards the worker. The client keeps to it; the worker ends a
/// session that does not.
pub const UPLOADS: usize = STAGING / 2;

/// The part of it for transfers towards the client. The worker keeps to it: streams stand still
/// until there is room.
pub const DOWNLOADS: usize = STAGING - UPLOADS;

/// Staging memory of one transfer, in bytes: its window of granted chunks is not larger.
pub const WINDOW: usize = 32 << 20;
