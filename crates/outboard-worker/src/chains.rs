//! Launches in a row, made as one.
//!
//! A launch takes the driver some 3 µs, whereas it launches a graph of sixteen kernels in a row,
//! with all of their parameters set anew, in about as much. While received commands wait to be
//! executed, the worker therefore holds consecutive launches in a stream back until there are a
//! few. A sequence of kernels that has come several times becomes a graph, a *chain*: the next time
//! only its parameters are set. A launch is not held back if no command waits or if the next one is
//! not such a launch. Decision 29 says what a chain must not change.

mod worker;

use std::hash::{Hash, Hasher};

use outboard_abi::{CUfunc_st, CUfunction, CUgraph_st, CUgraphExec_st, CUgraphNode_st};
use outboard_abi::{CUresult, CUstream, CUstream_st};
use outboard_driver::{Table, call};
use outboard_wire::{ContextId, ObjectId, StreamId};
use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::bounds::Kind as Bound;
use super::launch::{Shape, launch_plain, with_node};
use super::objects::Handle;

/// A server that must not do this has this set to `off`.
const VARIABLE: &str = "OUTBOARD_CHAINS";

/// Kernels in a chain: fewer gain little, more gain no more.
const LEAST_KERNELS: usize = 4;
const MOST_KERNELS: usize = 16;
/// A row of kernels is made a chain when it comes for this time.
const CHAINED_AT: u32 = 8;
/// A row with a kernel that cannot be in a graph.
const NOT_CHAINABLE: u32 = u32::MAX / 2;
/// Rows that are counted; then counting begins anew.
const MOST_ROWS: usize = 4096;
/// Chains of a session. Each takes 128 KiB of device memory (an H200 with driver 580).
const MOST_CHAINS: usize = 32;
/// To make a chain takes as long as some fifty launches: beyond the first of them, each must be
/// paid for by so many uses of others.
const USES_PER_CHAIN: u64 = 16;
const CHAINS_BEFORE_USES: u64 = 16;

/// Where launches go: a stream, by the client's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) ctx: ContextId,
    pub(super) stream: StreamId,
}

/// A launch without its parameters.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Kernel {
    /// The driver's handle, as a number.
    function: usize,
    shape: Shape,
    /// Bytes of parameters.
    params: usize,
}

impl Kernel {
    fn function(&self) -> CUfunction {
        self.function as *mut CUfunc_st
    }
}

/// Launches that have not been made.
#[derive(Default)]
struct Held {
    place: Option<(Place, Handle<CUstream_st>)>,
    kernels: Vec<Kernel>,
    /// Their parameters, one behind the other.
    params: Vec<u8>,
    hasher: FxHasher,
}

impl Held {
    fn clear(&mut self) {
        self.place = None;
        self.kernels.clear();
        self.params.clear();
        self.hasher = FxHasher::default();
    }
}

/// The parameters of each of several kernels.
fn each<'a>(
    kernels: &'a [Kernel],
    mut params: &'a [u8],
) -> impl Iterator<Item = (&'a Kernel, &'a [u8])> {
    kernels.iter().map(move |kernel| {
        let (own, rest) = params.split_at(kernel.params);
        params = rest;
        (kernel, own)
    })
}

/// A graph of kernels in a row.
struct Chain {
    kernels: Vec<Kernel>,
    nodes: Vec<Handle<CUgraphNode_st>>,
    graph: Handle<CUgraph_st>,
    exec: Handle<CUgraphExec_st>,
    /// What the nodes were last given.
    params: Vec<u8>,
    /// When it was last used.
    used: u64,
}

/// What a message does to chains, as its description in api/wire/ says: what they rest on is about
/// to change or to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effect {
    /// Functions are about to end, and what comes after them may have their handles.
    Ends,
    /// The context is about to change in a way that graphs may not notice.
    EndsInContext,
    /// The stream is about to end.
    EndsInStream(StreamId),
    /// The function is about to change in a way that graphs may not notice.
    EndsWithFunction(ObjectId),
    /// Launches in the stream are made one by one from now on.
    BarsStream(StreamId),
    /// All launches are.
    Bars,
}

/// Has chains, to which messages do what their descriptions say.
pub(crate) trait Chained {
    /// Is called before the message is handled.
    fn affect_chains(&mut self, effect: Effect);
}

/// The launches that are held back, and the chains.
#[derive(Default)]
pub(super) struct Chains {
    off: bool,
    /// Whether anything that came after the command at hand is at hand, too.
    more: bool,
    held: Held,
    counts: FxHashMap<(Place, u64), u32>,
    made: FxHashMap<(Place, u64), Chain>,
    /// Streams that kernels in a graph would not be in as they are: with a priority, or with
    /// attributes.
    special: FxHashSet<Place>,
    builds: u64,
    uses: u64,
}

impl Chains {
    pub(super) fn from_env() -> Chains {
        Chains {
            off: std::env::var_os(VARIABLE).is_some_and(|value| value == "off"),
            ..Chains::default()
        }
    }

    /// A command is about to be carried out; `more`: others are at hand that came after it.
    #[inline]
    pub(super) fn begin(&mut self, more: bool) {
        self.more = more;
    }

    /// Whether nothing is held back.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.held.kernels.is_empty()
    }

    /// Whether launches there can follow those that are held back.
    #[inline]
    pub(super) fn goes_on_in(&self, place: Place) -> bool {
        self.held.place.is_none_or(|(held, _)| held == place)
    }

    /// Makes each launch by itself from now on.
    pub(super) fn stop(&mut self, table: &Table) {
        self.off = true;
        self.forget(table, |_, _| true);
    }

    /// A message in context `ctx` does this; `function` finds the driver's function of a name.
    fn affect(
        &mut self,
        table: &Table,
        ctx: ContextId,
        effect: Effect,
        function: impl FnOnce(ObjectId) -> Option<CUfunction>,
    ) {
        match effect {
            Effect::Ends => {
                self.forget_all(table);
            }
            Effect::EndsInContext => self.forget(table, |of, _| of.ctx == ctx),
            Effect::EndsInStream(stream) => {
                let place = Place { ctx, stream };
                self.special.remove(&place);
                self.forget(table, |of, _| of == place);
            }
            Effect::EndsWithFunction(name) => {
                if let Some(function) = function(name) {
                    let is_it = |kernel: &Kernel| kernel.function == function as usize;
                    self.forget(table, |_, chain| chain.kernels.iter().any(is_it));
                }
            }
            Effect::BarsStream(stream) => self.bar(table, Place { ctx, stream }),
            Effect::Bars => self.stop(table),
        }
    }

    /// A stream's launches are made each by itself from now on.
    fn bar(&mut self, table: &Table, place: Place) {
        // Whether there is such a stream is not known yet.
        if Bound::Stream.room(self.special.len()).is_err() {
            return self.stop(table);
        }
        self.special.insert(place);
        self.forget(table, |of, _| of == place);
    }

    /// A context is about to end.
    pub(super) fn end_context(&mut self, table: &Table, ctx: ContextId) {
        self.special.retain(|place| place.ctx != ctx);
        self.forget(table, |of, _| of.ctx == ctx);
    }

    /// Ends all chains: what they rest on may be gone, or memory is wanted. Whether there was any.
    pub(super) fn forget_all(&mut self, table: &Table) -> bool {
        let any = !self.made.is_empty();
        self.counts.clear();
        self.forget(table, |_, _| true);
        any
    }

    fn forget(&mut self, table: &Table, which: impl Fn(Place, &Chain) -> bool) {
        for (_, chain) in self.made.extract_if(|(place, _), chain| which(*place, chain)) {
            chain.end(table);
        }
    }

    /// Whether a launch into a stream may be held back.
    #[inline]
    fn may_hold(&self, place: Place) -> bool {
        !self.off && (self.special.is_empty() || !self.special.contains(&place))
    }

    /// Holds a launch back; whether those that are held back are to be made now.
    #[inline]
    fn hold(&mut self, (place, stream): (Place, CUstream), kernel: Kernel, params: &[u8]) -> bool {
        let held = &mut self.held;
        let before = held.kernels.last().map(|kernel| kernel.function);
        held.place = Some((place, Handle::new(stream)));
        kernel.hash(&mut held.hasher);
        held.kernels.push(kernel);
        held.params.extend_from_slice(params);
        let count = held.kernels.len();
        count == MOST_KERNELS
            || (count >= LEAST_KERNELS
                && before.is_some_and(|before| ends_row(before, kernel.function)))
    }

    /// Makes what is held back, as a chain or one by one; what failed.
    fn make(&mut self, table: &Table) -> Vec<CUresult> {
        let mut held = std::mem::take(&mut self.held);
        let mut failed = Vec::new();
        if let Some((place, stream)) = held.place
            && !self.make_chain(table, place, stream.get(), &held)
        {
            for (kernel, params) in each(&held.kernels, &held.params) {
                failed.extend(
                    launch_plain(table, kernel.function(), &kernel.shape, stream.get(), params)
                        .err(),
                );
            }
        }
        held.clear();
        // What it has allocated is used again.
        self.held = held;
        failed
    }

    /// Launches the held-back kernels as a chain, if there is one for them or it is time to make
    /// one. If not, or if that fails, nothing has been launched.
    fn make_chain(&mut self, table: &Table, place: Place, stream: CUstream, held: &Held) -> bool {
        if held.kernels.len() < LEAST_KERNELS {
            return false;
        }
        let name = (place, held.hasher.finish());
        if !self.made.contains_key(&name) && !self.build(table, name, held) {
            return false;
        }
        let Some(chain) = self.made.get_mut(&name).filter(|chain| chain.kernels == held.kernels)
        else {
            return false;
        };
        if chain
            .set(table, &held.params)
            .and_then(|()| call!(table, cuGraphLaunch(chain.exec.get(), stream)))
            .is_ok()
        {
            outboard_control::meter::page().chained(held.kernels.len());
            self.uses += 1;
            chain.used = self.uses;
            return true;
        }
        // One by one they give the errors that they natively give.
        if let Some(chain) = self.made.remove(&name) {
            chain.end(table);
        }
        false
    }

    /// Counts a row of kernels, and makes it a chain if it has come often.
    fn build(&mut self, table: &Table, name: (Place, u64), held: &Held) -> bool {
        if self.counts.len() >= MOST_ROWS {
            self.counts.clear();
        }
        let count = self.counts.entry(name).or_default();
        *count = count.saturating_add(1);
        if *count < CHAINED_AT
            || *count >= NOT_CHAINABLE
            || self.builds > CHAINS_BEFORE_USES + self.uses / USES_PER_CHAIN
        {
            return false;
        }
        *count = NOT_CHAINABLE;
        self.builds += 1;
        if self.made.len() >= MOST_CHAINS
            && let Some(oldest) =
                self.made.iter().min_by_key(|(_, chain)| chain.used).map(|(name, _)| *name)
            && let Some(chain) = self.made.remove(&oldest)
        {
            chain.end(table);
        }
        let Ok(chain) = Chain::new(table, held) else { return false };
        // To be counted anew when it is gone.
        self.counts.remove(&name);
        self.made.insert(name, chain);
        true
    }
}

/// Whether a row of kernels ends with two that follow each other. That the content decides makes
/// the same rows of a program that does the same again, wherever the first of them began.
#[inline]
fn ends_row(before: usize, function: usize) -> bool {
    before != function && {
        let mut hasher = FxHasher::default();
        (before, function).hash(&mut hasher);
        hasher.finish() >> 61 == 0
    }
}

impl Chain {
    fn new(table: &Table, held: &Held) -> Result<Chain, CUresult> {
        let mut graph = core::ptr::null_mut();
        call!(table, cuGraphCreate(&raw mut graph, 0))?;
        let mut nodes: Vec<Handle<CUgraphNode_st>> = Vec::with_capacity(held.kernels.len());
        let added = each(&held.kernels, &held.params).try_for_each(|(kernel, params)| {
            let before = nodes.last().map(|node| node.get());
            let (before, count) = (
                before.as_ref().map_or(core::ptr::null(), core::ptr::from_ref),
                nodes.len().min(1),
            );
            let mut node = core::ptr::null_mut();
            with_node(kernel.function(), &kernel.shape, params, |params| {
                call!(table, cuGraphAddKernelNode_v2(&raw mut node, graph, before, count, params))
            })?;
            nodes.push(Handle::new(node));
            Ok(())
        });
        let mut exec = core::ptr::null_mut();
        let made =
            added.and_then(|()| call!(table, cuGraphInstantiateWithFlags(&raw mut exec, graph, 0)));
        if let Err(error) = made {
            let _ = call!(table, cuGraphDestroy(graph));
            return Err(error);
        }
        let (graph, exec) = (Handle::new(graph), Handle::new(exec));
        Ok(Chain {
            kernels: held.kernels.clone(),
            nodes,
            graph,
            exec,
            params: held.params.clone(),
            used: 0,
        })
    }

    /// Gives the kernels their parameters.
    fn set(&mut self, table: &Table, params: &[u8]) -> Result<(), CUresult> {
        if self.params == params {
            return Ok(());
        }
        let nodes =
            each(&self.kernels, params).zip(each(&self.kernels, &self.params)).zip(&self.nodes);
        for (((kernel, new), (_, old)), node) in nodes {
            if new != old {
                let exec = self.exec.get();
                with_node(kernel.function(), &kernel.shape, new, |params| {
                    call!(table, cuGraphExecKernelNodeSetParams_v2(exec, node.get(), params))
                })?;
            }
        }
        self.params.clear();
        self.params.extend_from_slice(params);
        Ok(())
    }

    /// Ends it. Launches that are under way are not disturbed.
    fn end(self, table: &Table) {
        let _ = call!(table, cuGraphExecDestroy(self.exec.get()));
        let _ = call!(table, cuGraphDestroy(self.graph.get()));
    }
}

#[cfg(test)]
mod tests;
