//! Green contexts of the software device: shares are kept as told, and as many of its threads work
//! for each. Which ones, all share.

mod calls;

use std::collections::HashMap;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, Result, Share, Split, SplitRequest, StreamId};
use parking_lot::Mutex;

use crate::sched::Ticket;

/// What is known of shares.
#[derive(Default)]
pub(crate) struct Shares {
    greens: Mutex<HashMap<ObjectId, Green>>,
    descriptions: Mutex<HashMap<ObjectId, Share>>,
    /// Events that all work to come of a context waits for, streams made later too.
    gates: Mutex<HashMap<ContextId, Vec<Ticket>>>,
}

struct Green {
    ctx: ContextId,
    share: Share,
    streams: Vec<ObjectId>,
    gates: Vec<Ticket>,
}

/// `CU_DEV_RESOURCE_TYPE_SM`.
const MULTIPROCESSORS: u32 = 1;
/// Where the fields are: the kind, ours behind it, the public ones.
const KIND: usize = 0;
const DEVICE: usize = 4;
const FIRST: usize = 8;
const COUNT: usize = 96;
const LEAST: usize = 100;
const ALIGNMENT: usize = 104;

fn field(share: &Share, at: usize) -> u32 {
    share[at..].first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn shared(fields: impl IntoIterator<Item = (usize, u32)>) -> Share {
    let mut share = [0; size_of::<Share>()];
    for (at, value) in fields {
        share[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    share
}

/// A part of a device's multiprocessors, from one on. As with NVIDIA's driver, it cannot be split:
/// only what a green context made of it has can.
fn part(device: u32, first: u32, count: u32) -> Share {
    shared([(KIND, MULTIPROCESSORS), (DEVICE, device), (FIRST, first), (COUNT, count)])
}

/// Multiprocessors of a device, or of a green context, from one on.
fn share(device: u32, first: u32, count: u32) -> Share {
    let fields = [(KIND, MULTIPROCESSORS), (DEVICE, device), (FIRST, first), (COUNT, count)];
    shared(fields.into_iter().chain([(LEAST, 1), (ALIGNMENT, 1)]))
}

fn split(request: &SplitRequest<'_>) -> Result<Split> {
    let (device, first, total) =
        (field(request.input, DEVICE), field(request.input, FIRST), field(request.input, COUNT));
    let size = request.least.max(1);
    if size > total || request.flags > 3 || field(request.input, LEAST) == 0 {
        return Err(CUresult::CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION);
    }
    let most = total / size;
    let count = request.groups.map_or(most, |groups| groups.min(most));
    let groups = match request.groups {
        Some(_) => (0..count).map(|index| part(device, first + index * size, size)).collect(),
        None => Vec::new(),
    };
    let left = count * size;
    let remaining = request.remaining.then(|| part(device, first + left, total - left));
    Ok(Split { count, groups, remaining })
}

impl Shares {
    /// How many processors the work of a stream may use.
    pub(crate) fn processors(&self, stream: StreamId) -> u32 {
        let Some(stream) = stream.object() else { return u32::MAX };
        let greens = self.greens.lock();
        let green = greens.values().find(|green| green.streams.contains(&stream));
        green.map_or(u32::MAX, |green| field(&green.share, COUNT))
    }

    /// Forgets what a context that has ended had.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.greens.lock().retain(|_, green| green.ctx != ctx);
        self.gates.lock().remove(&ctx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(input: &Share, groups: Option<u32>, least: u32) -> SplitRequest<'_> {
        SplitRequest { input, groups, remaining: true, flags: 0, least }
    }

    #[test]
    fn splits_are_disjoint_and_leave_the_rest() {
        let whole = share(0, 0, 8);
        let halves = split(&request(&whole, Some(2), 3)).unwrap();
        assert_eq!(halves.groups, [part(0, 0, 3), part(0, 3, 3)]);
        assert_eq!((halves.count, halves.remaining), (2, Some(part(0, 6, 2))));
        assert!(
            split(&request(&halves.groups[0], Some(1), 1)).is_err(),
            "only what a green context has can be split again"
        );
    }

    #[test]
    fn a_trial_tells_how_many() {
        let whole = share(0, 0, 8);
        assert_eq!(split(&request(&whole, None, 3)).unwrap().count, 2);
        assert_eq!(split(&request(&whole, Some(9), 4)).unwrap().count, 2);
        assert!(split(&request(&whole, Some(1), 9)).is_err());
    }
}
