//! Names of streams and events that the client makes for itself: the front never gives them. A
//! context's name is never used again, so that neither are these.

use outboard_front::backend::{ContextId, ObjectId};
use outboard_front::several::{OwnStream, Way};

const STREAM: u64 = 1 << 63;
const EVENT: u64 = 1 << 62;
const CROSSING: u64 = 1 << 61;

/// The pager's stream in a context.
pub(super) fn pager_stream(ctx: ContextId) -> ObjectId {
    ObjectId(STREAM | u64::from(ctx.0))
}

/// The pager's event in a context.
pub(super) fn pager_event(ctx: ContextId) -> ObjectId {
    ObjectId(EVENT | u64::from(ctx.0))
}

/// A stream in a context for work with other servers.
pub(super) fn crossing_stream(ctx: ContextId, which: OwnStream) -> ObjectId {
    let number = match which {
        OwnStream::Copies(Way::ToDevice) => 0,
        OwnStream::Copies(Way::FromDevice) => 1,
        OwnStream::Held => 2,
    };
    ObjectId(STREAM | CROSSING | number << 32 | u64::from(ctx.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ() {
        let of = |ctx| {
            [
                pager_stream(ctx),
                pager_event(ctx),
                crossing_stream(ctx, OwnStream::Copies(Way::ToDevice)),
                crossing_stream(ctx, OwnStream::Copies(Way::FromDevice)),
                crossing_stream(ctx, OwnStream::Held),
            ]
        };
        let all: std::collections::HashSet<ObjectId> =
            [ContextId(0), ContextId(1), ContextId(u32::MAX)].into_iter().flat_map(of).collect();
        assert_eq!(all.len(), 15);
    }
}
