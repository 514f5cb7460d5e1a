//! The driver's objects under the client's names for them.

use outboard_abi::CUresult;
use outboard_wire::{ContextId, ObjectId};
use rustc_hash::FxHashMap;

use super::bounds::Kind;

/// A driver's handle. It is only ever handed back to the driver, from whichever thread has the
/// context current.
pub(crate) struct Handle<T>(*mut T);

impl<T> Handle<T> {
    pub(crate) fn new(pointer: *mut T) -> Handle<T> {
        Handle(pointer)
    }

    pub(crate) fn get(self) -> *mut T {
        self.0
    }
}

// By hand: a derive would ask the same of `T`, which is never there.
impl<T> Clone for Handle<T> {
    fn clone(&self) -> Handle<T> {
        *self
    }
}

impl<T> Copy for Handle<T> {}

// SAFETY: a handle is a name; driver calls on it are thread-safe.
unsafe impl<T> Send for Handle<T> {}
// SAFETY: as above; nothing is read through it here.
unsafe impl<T> Sync for Handle<T> {}

/// Objects of one kind, by the client's names. A client that chose them so that they collide would
/// slow itself down.
pub(crate) struct Named<T>(FxHashMap<ObjectId, (ContextId, T)>, Kind);

impl<T: Clone> Named<T> {
    pub(crate) fn new(kind: Kind) -> Named<T> {
        Named(FxHashMap::default(), kind)
    }

    /// Adds an object of context `ctx`. The name must be new.
    pub(crate) fn insert(&mut self, name: ObjectId, ctx: ContextId, object: T) {
        self.0.insert(name, (ctx, object));
    }

    /// Whether the name is taken, or one that no client may give, or there are as many objects as a
    /// session may have.
    pub(crate) fn check_new(&self, name: ObjectId) -> Result<(), CUresult> {
        if name == ObjectId::NONE || self.0.contains_key(&name) {
            return Err(CUresult::CUDA_ERROR_INVALID_HANDLE);
        }
        self.1.room(self.0.len())
    }

    pub(crate) fn get(&self, name: ObjectId) -> Result<T, CUresult> {
        self.0
            .get(&name)
            .map(|(_, object)| object.clone())
            .ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// All of them.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|(_, object)| object)
    }

    pub(crate) fn remove(&mut self, name: ObjectId) -> Result<T, CUresult> {
        self.0.remove(&name).map(|(_, object)| object).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    /// Forgets the objects of a context that is gone.
    pub(crate) fn forget(&mut self, ctx: ContextId) {
        self.0.retain(|_, (owner, _)| *owner != ctx);
    }

    /// Forgets the objects that are not `kept`.
    pub(crate) fn retain(&mut self, kept: impl Fn(&T) -> bool) {
        self.0.retain(|_, (_, object)| kept(object));
    }
}
