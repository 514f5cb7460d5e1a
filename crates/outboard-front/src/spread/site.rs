//! Where a node's work is done.

use outboard_wire::graph::NodeParams;

use crate::backend::{Backend, ContextId, CrossingCopy, Result, ServerId};
use crate::copy::Wait;
use crate::graph::site::{description, of_sides, of_work};
use crate::process::Process;

/// The place of a node's work.
#[derive(Debug, PartialEq)]
pub(super) enum Site {
    /// Any server will do.
    Anywhere(NodeParams),
    /// A server, and the parameters as it can take them.
    On(ServerId, NodeParams),
    /// Two servers. The copy is made in a stream of this context.
    Between(ContextId, CrossingCopy),
}

/// A node and where it is.
pub(super) struct Placed {
    pub(super) node: u64,
    /// As of [`Flat`](super::flat::Flat).
    pub(super) before: Vec<(usize, [u8; 3])>,
    pub(super) site: Site,
}

/// Looks up where a node's work is done.
pub(super) fn site<B: Backend>(process: &'static Process<B>, params: NodeParams) -> Result<Site> {
    let NodeParams::Copy(mut copy) = params else {
        return Ok(match of_work(process, &params) {
            Some(server) => Site::On(server, params),
            None => Site::Anywhere(params),
        });
    };
    let (server, other) = match of_sides(process, &copy) {
        [Some(dst), Some(src)] => (dst, src),
        [Some(one), None] | [None, Some(one)] => (one, one),
        [None, None] => (copy.ctx.server(), copy.ctx.server()),
    };
    if server == other && server == copy.ctx.server() {
        return Ok(Site::On(server, NodeParams::Copy(copy)));
    }
    let mut sides = description(process, &copy)?.resolve(process)?;
    sides.join_rows()?;
    sides.check(process)?;
    let crossing = sides.crossing(process, copy.ctx, Wait::Asynchronous)?;
    let ((_, dst), (_, src)) = (crossing.dst, crossing.src);
    if server != other {
        // Best in a context of one of its sides.
        let own = if copy.ctx == dst { dst } else { src };
        return Ok(Site::Between(own, crossing));
    }
    // The server of its memory makes it, in a context of its own.
    copy.ctx = if dst.server() == server { dst } else { src };
    Ok(Site::On(server, NodeParams::Copy(copy)))
}
