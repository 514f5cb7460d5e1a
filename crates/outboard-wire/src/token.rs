//! What tokens stand for, in place of which programs pass things of the server to each other.

/// What a token names; one kind is not taken for another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum TokenKind {
    /// An allocation.
    Memory = 1,
    /// An event.
    Event = 2,
    /// Physical memory of the virtual-memory calls.
    Physical = 3,
    /// A memory pool.
    Pool = 4,
    /// An allocation of a pool that is shared.
    Pooled = 5,
}
