//! Texture references of no module.

use std::mem::discriminant;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, ReferenceSetting as S, References, Result};

use super::{alike, check, default, invalid};
use crate::cpu::Cpu;

impl References for Cpu {
    fn reference_create(&self, ctx: ContextId, id: ObjectId) -> Result<()> {
        self.references.0.lock().insert(id, (ctx, Vec::new()));
        Ok(())
    }

    fn reference_destroy(&self, _ctx: ContextId, id: ObjectId) -> Result<()> {
        self.references.0.lock().remove(&id).map(|_| ()).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)
    }

    fn reference_set(&self, _ctx: ContextId, id: ObjectId, setting: &S) -> Result<u64> {
        let mut setting = *setting;
        let offset = check(&mut setting)?;
        if let S::Array(name, _) = setting {
            self.arrays.get(name)?;
        }
        let mut references = self.references.0.lock();
        let (_, settings) = references.get_mut(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        settings.retain(|old| !alike(old, &setting));
        settings.push(setting);
        Ok(offset)
    }

    fn reference_get(&self, _ctx: ContextId, id: ObjectId, like: &S) -> Result<S> {
        let references = self.references.0.lock();
        let (_, settings) = references.get(&id).ok_or(CUresult::CUDA_ERROR_INVALID_HANDLE)?;
        match settings.iter().find(|set| alike(set, like)) {
            Some(S::Rows(_, address, _)) => Ok(S::Memory(*address, 0)),
            Some(set) if discriminant(set) == discriminant(like) => Ok(*set),
            Some(_) => Err(invalid()),
            None => default(like),
        }
    }
}
