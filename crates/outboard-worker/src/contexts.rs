//! The contexts that the client has opened: which of them the command at hand is for, and which one
//! is current on the dispatcher's thread.

use outboard_abi::{CUcontext, CUresult};
use outboard_driver::{Table, call};
use outboard_wire::ContextId;
use rustc_hash::FxHashMap;

use super::answer::Outcome;
use super::bounds::Kind;
use super::kept::Kept;
use super::objects::Handle;

/// A context that the client has opened.
#[derive(Clone, Copy)]
pub(crate) struct Context {
    pub(crate) real: Handle<outboard_abi::CUctx_st>,
    pub(crate) device: i32,
    pub(crate) primary: bool,
    /// It is a green one, with the session's part of the device.
    pub(crate) green: Option<Handle<outboard_abi::CUgreenCtx_st>>,
}

/// A context handle to make current on any thread.
pub(crate) fn current(context: &Context) -> CUcontext {
    context.real.get()
}

/// The contexts of a session, by the client's names.
#[derive(Default)]
pub(crate) struct Contexts {
    /// Those made ahead.
    kept: Kept,
    open: FxHashMap<ContextId, Context>,
    /// The context of the command at hand.
    here: ContextId,
    /// The one that is current on the dispatcher's thread; 0 for none.
    current: ContextId,
    /// That context, if the name is not 0.
    entered: Option<Context>,
}

impl Contexts {
    /// None, but for what was made ahead.
    pub(crate) fn new(kept: Kept) -> Contexts {
        Contexts { kept, ..Contexts::default() }
    }

    /// The primary context of a device, if it was made ahead and nobody has opened it yet.
    pub(crate) fn take_kept(
        &mut self,
        table: &Table,
        device: i32,
        flags: u32,
    ) -> Option<Handle<outboard_abi::CUctx_st>> {
        self.kept.take(table, device, flags)
    }

    /// Nobody will open what was made ahead.
    pub(crate) fn give_back_kept(&mut self, table: &Table) {
        self.kept.give_back(table, |_| false);
    }

    /// The context of the command at hand.
    #[inline]
    pub(crate) fn here(&self) -> ContextId {
        self.here
    }

    /// What follows is for this context; which one it was for before.
    #[inline]
    pub(crate) fn turn_to(&mut self, ctx: ContextId) -> ContextId {
        std::mem::replace(&mut self.here, ctx)
    }

    /// Makes the context at hand current.
    #[inline]
    pub(crate) fn enter(&mut self, table: &Table) -> Result<Context, CUresult> {
        if let Some(context) = self.entered
            && self.current == self.here
            && self.here != ContextId::NONE
        {
            return Ok(context);
        }
        self.change(table)
    }

    fn change(&mut self, table: &Table) -> Result<Context, CUresult> {
        let context = self.get(self.here)?;
        call!(table, cuCtxSetCurrent(current(&context)))?;
        (self.current, self.entered) = (self.here, Some(context));
        Ok(context)
    }

    /// A call has made another context current, or none.
    pub(crate) fn lose_current(&mut self) {
        self.current = ContextId::NONE;
    }

    /// Has no context current if the one at hand is.
    pub(crate) fn leave(&mut self, table: &Table) -> Outcome {
        if self.current != self.here {
            return Ok(());
        }
        self.lose_current();
        call!(table, cuCtxSetCurrent(core::ptr::null_mut()))
    }

    /// The context that is current, if any of the session's is.
    pub(crate) fn current(&self) -> Option<&Context> {
        self.open.get(&self.current)
    }

    pub(crate) fn get(&self, ctx: ContextId) -> Result<Context, CUresult> {
        self.open.get(&ctx).copied().ok_or(CUresult::CUDA_ERROR_INVALID_CONTEXT)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Context> {
        self.open.values()
    }

    /// Their names.
    pub(crate) fn names(&self) -> Vec<ContextId> {
        self.open.keys().copied().collect()
    }

    /// Whether a context may have the name that the command at hand gives it.
    pub(crate) fn check_new(&self) -> Outcome {
        if self.here == ContextId::NONE || self.open.contains_key(&self.here) {
            return Err(CUresult::CUDA_ERROR_INVALID_CONTEXT);
        }
        Kind::Context.room(self.open.len())
    }

    /// Adds the context at hand, whose making has changed which one is current.
    pub(crate) fn add(&mut self, context: Context) {
        self.lose_current();
        self.open.insert(self.here, context);
    }

    /// Forgets the context at hand, which may be current still.
    pub(crate) fn remove(&mut self) {
        self.open.remove(&self.here);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recorded::{calls, table};

    const ONE: ContextId = ContextId(1);
    const TWO: ContextId = ContextId(2);

    /// Two contexts, whose handles are 0x10 and 0x20.
    fn two() -> Contexts {
        let mut contexts = Contexts::default();
        for ctx in [ONE, TWO] {
            contexts.turn_to(ctx);
            contexts.check_new().unwrap();
            let real = Handle::new((u64::from(ctx.0) << 4) as *mut _);
            contexts.add(Context { real, device: ctx.0 as i32, primary: true, green: None });
        }
        contexts
    }

    #[test]
    fn the_driver_is_told_only_when_the_context_changes() {
        let (table, mut contexts) = (table(), two());
        for ctx in [ONE, ONE, TWO, TWO, ONE] {
            contexts.turn_to(ctx);
            assert_eq!(contexts.enter(table).unwrap().device, ctx.0 as i32);
        }
        contexts.lose_current();
        contexts.enter(table).unwrap();
        let set = |context: u32| format!("cuCtxSetCurrent({context:#x})");
        assert_eq!(calls(), [0x10, 0x20, 0x10, 0x10].map(set));
    }

    #[test]
    fn what_is_not_open_cannot_be_entered() {
        let (table, mut contexts) = (table(), two());
        contexts.enter(table).unwrap();
        for ctx in [ContextId::NONE, ContextId(3)] {
            contexts.turn_to(ctx);
            assert_eq!(contexts.enter(table).err(), Some(CUresult::CUDA_ERROR_INVALID_CONTEXT));
        }
        assert_eq!(contexts.current().unwrap().device, 2, "the one before stays current");
    }

    #[test]
    fn a_context_that_has_ended_is_left() {
        let (table, mut contexts) = (table(), two());
        contexts.enter(table).unwrap();
        contexts.remove();
        contexts.leave(table).unwrap();
        assert_eq!(calls().last().unwrap(), "cuCtxSetCurrent(0x0)");
        assert!(contexts.enter(table).is_err() && contexts.current().is_none());
        assert_eq!(contexts.names(), [ONE]);
        // Another one that is current stays.
        contexts.turn_to(ONE);
        contexts.enter(table).unwrap();
        calls();
        contexts.turn_to(TWO);
        contexts.leave(table).unwrap();
        assert!(calls().is_empty());
        assert_eq!(contexts.check_new(), Ok(()), "the name is free again");
        contexts.turn_to(ONE);
        assert!(contexts.check_new().is_err());
    }
}
