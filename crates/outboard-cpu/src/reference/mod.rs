//! Texture references of no module: what is set is kept, though no kernel here reads through one.

mod calls;

use std::collections::HashMap;
use std::mem::discriminant;

use outboard_abi::CUresult;
use outboard_front::backend::{ContextId, ObjectId, ReferenceSetting as S, Result};
use parking_lot::Mutex;

/// Linear memory begins at multiples of this, as the device's attribute says.
const ALIGNMENT: u64 = 512;

fn invalid() -> CUresult {
    CUresult::CUDA_ERROR_INVALID_VALUE
}

/// The settings of each reference, and its context.
#[derive(Default)]
pub(crate) struct TextureReferences(Mutex<HashMap<ObjectId, (ContextId, Vec<S>)>>);

impl TextureReferences {
    /// Forgets those of a context that has ended.
    pub(crate) fn forget(&self, ctx: ContextId) {
        self.0.lock().retain(|_, (of, _)| *of != ctx);
    }
}

fn binds(setting: &S) -> bool {
    matches!(setting, S::Array(..) | S::Mipmap(..) | S::Memory(..) | S::Rows(..))
}

/// Whether one takes the other's place.
fn alike(a: &S, b: &S) -> bool {
    match (a, b) {
        (S::AddressMode(one, _), S::AddressMode(other, _)) => one == other,
        _ => discriminant(a) == discriminant(b) || (binds(a) && binds(b)),
    }
}

/// What holds before anything is set.
fn default(like: &S) -> Result<S> {
    Ok(match *like {
        S::AddressMode(dimension, _) if dimension < 3 => S::AddressMode(dimension, 0),
        S::Filter(_) => S::Filter(0),
        S::MipmapFilter(_) => S::MipmapFilter(0),
        S::MipmapBias(_) => S::MipmapBias(0.0),
        S::MipmapClamp(..) => S::MipmapClamp(0.0, 0.0),
        S::Anisotropy(_) => S::Anisotropy(0),
        S::Border(..) => S::Border((0.0, 0.0), (0.0, 0.0)),
        S::Flags(_) => S::Flags(0),
        _ => return Err(invalid()),
    })
}

/// Checks a setting, and gives the offset of its memory.
fn check(setting: &mut S) -> Result<u64> {
    let fine = match *setting {
        S::AddressMode(dimension, mode) => dimension < 3 && mode < 4,
        S::Filter(mode) | S::MipmapFilter(mode) => mode < 2,
        S::Format(format, channels) => outboard_wire::arrays::element(format, channels).is_some(),
        S::Rows(descriptor, address, _) => {
            descriptor.extent().is_some() && address.is_multiple_of(ALIGNMENT)
        }
        _ => true,
    };
    match setting {
        _ if !fine => Err(invalid()),
        S::Memory(address, _) => {
            let offset = address.0 % ALIGNMENT;
            address.0 -= offset;
            Ok(offset)
        }
        _ => Ok(0),
    }
}
