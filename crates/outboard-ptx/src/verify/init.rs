//! Initial contents of variables.

use super::context::Context;
use crate::ast::{Const, Declarator, Init, Variable};
use crate::error::{ErrorKind, excerpt};
use crate::ir::{GlobalId, Reloc, Symbol};
use crate::types::Type;

/// Bound on the initial contents of a whole module in bytes.
const MAX_INIT: u64 = 1 << 28;

struct Contents<'c, 's> {
    cx: &'c Context<'s>,
    ty: Type,
    bytes: Vec<u8>,
    relocs: Vec<Reloc>,
    /// Bytes that the variable has, for arrays of known size.
    limit: u64,
}

impl<'s> Context<'s> {
    /// Fills in the initial contents of a declared variable, and with them the size of an array
    /// declared `[]`.
    pub(super) fn initialise(
        &mut self,
        id: GlobalId,
        variable: &Variable<'s>,
        declarator: &Declarator<'s>,
    ) -> Result<(), ErrorKind> {
        let Some(init) = &declarator.init else { return Ok(()) };
        let unsized_array = declarator.dims.first() == Some(&None);
        // Elements are scalars; a vector counts as an innermost dimension.
        let mut strides = Vec::new();
        let mut stride = u64::from(variable.ty.size());
        if variable.vector > 1 {
            strides.push(stride);
            stride *= u64::from(variable.vector);
        }
        for dim in declarator.dims.iter().rev() {
            strides.push(stride);
            stride = stride.saturating_mul(dim.unwrap_or(1));
        }
        strides.reverse();
        let budget = MAX_INIT - self.init_bytes.min(MAX_INIT);
        let limit = if unsized_array { budget } else { self.globals[id.0 as usize].size };
        let mut contents =
            Contents { cx: self, ty: variable.ty, bytes: Vec::new(), relocs: Vec::new(), limit };
        if limit > budget {
            contents.limit = budget;
        }
        let end = contents.fill(init, 0, &strides).map_err(|kind| match kind {
            ErrorKind::Declaration(reason) => ErrorKind::Declaration(format!(
                "initialiser of '{}': {reason}",
                excerpt(declarator.name)
            )),
            other => other,
        })?;
        let Contents { bytes, relocs, .. } = contents;
        self.init_bytes += bytes.len() as u64;
        let global = &mut self.globals[id.0 as usize];
        if unsized_array {
            global.size = end;
        }
        global.init = bytes;
        global.relocs = relocs;
        Ok(())
    }
}

impl Contents<'_, '_> {
    /// Writes `init` at `offset`; `strides` are the bytes between the elements of each dimension
    /// left. Gives the end.
    fn fill(&mut self, init: &Init<'_>, offset: u64, strides: &[u64]) -> Result<u64, ErrorKind> {
        match init {
            Init::List(list) => {
                let Some((&stride, inner)) = strides.split_first() else {
                    // Braces around a scalar.
                    return match list.as_slice() {
                        [only] => self.fill(only, offset, strides),
                        _ => {
                            Err(ErrorKind::Declaration("a list where one value is expected".into()))
                        }
                    };
                };
                let scalar = u64::from(self.ty.size());
                let mut at = offset;
                for item in list {
                    // Inner braces may be left out: then scalars follow one another.
                    let step = if matches!(item, Init::List(_)) { stride } else { scalar };
                    self.fill(item, at, if matches!(item, Init::List(_)) { inner } else { &[] })?;
                    at = at.saturating_add(step);
                }
                // A partly initialised last row still counts in full.
                let used = at - offset;
                Ok(offset.saturating_add(used.next_multiple_of(stride.max(1))))
            }
            Init::Str(text) => {
                let bytes = unescape(text);
                self.write(offset, &bytes)?;
                Ok(offset + bytes.len() as u64)
            }
            Init::Value(value) => {
                let bits = scalar_bits(*value, self.ty).ok_or_else(|| {
                    ErrorKind::Declaration("a value does not fit the type".into())
                })?;
                let size = self.ty.size().min(8) as usize;
                self.write(offset, &bits.to_le_bytes()[..size])?;
                Ok(offset + u64::from(self.ty.size()))
            }
            Init::Symbol { name, addend, generic, mask } => {
                let target =
                    *self.cx.names.get(name).ok_or_else(|| ErrorKind::Undefined(excerpt(name)))?;
                let size = self.ty.size();
                let (bytes, shift) = match mask {
                    None if size == 8 || size == 4 => (size, 0),
                    Some(mask) if *mask != 0 && mask >> mask.trailing_zeros() == 0xff => {
                        (1, mask.trailing_zeros())
                    }
                    _ => {
                        return Err(ErrorKind::Declaration(
                            "an address does not fit the type".into(),
                        ));
                    }
                };
                let global = matches!(target, Symbol::Global(_));
                self.write(offset, &[0; 8][..size.min(8) as usize])?;
                self.relocs.push(Reloc {
                    offset,
                    bytes,
                    shift,
                    target,
                    addend: *addend,
                    generic: *generic && global,
                });
                Ok(offset + u64::from(size))
            }
        }
    }

    fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), ErrorKind> {
        let end = offset.saturating_add(bytes.len() as u64);
        if end > self.limit {
            return Err(ErrorKind::Declaration(
                "too many values, or too much initialised data in all".into(),
            ));
        }
        let (start, end) = (offset as usize, end as usize);
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
        self.bytes[start..end].copy_from_slice(bytes);
        Ok(())
    }
}

/// The bit pattern of a constant in type `ty`, or `None` if it makes no sense there.
pub(super) fn scalar_bits(value: Const, ty: Type) -> Option<u64> {
    let bits = match (value, ty) {
        (Const::Int(value), Type::Pred) => u64::from(value != 0),
        (Const::Int(_), Type::F32 | Type::F64) => return None,
        (Const::Int(value), _) => value,
        (Const::F32(bits), Type::F64 | Type::B64) => f64::from(f32::from_bits(bits)).to_bits(),
        (Const::F32(bits), Type::F32 | Type::B32 | Type::F16x2 | Type::BF16x2) => u64::from(bits),
        (Const::F64(bits), Type::F64 | Type::B64) => bits,
        (Const::F64(bits), Type::F32 | Type::B32) => {
            u64::from((f64::from_bits(bits) as f32).to_bits())
        }
        (Const::F32(bits), Type::F16) => {
            u64::from(half::f16::from_f32(f32::from_bits(bits)).to_bits())
        }
        (Const::F64(bits), Type::F16) => {
            u64::from(half::f16::from_f64(f64::from_bits(bits)).to_bits())
        }
        (Const::F32(bits), Type::BF16) => {
            u64::from(half::bf16::from_f32(f32::from_bits(bits)).to_bits())
        }
        (Const::F64(bits), Type::BF16) => {
            u64::from(half::bf16::from_f64(f64::from_bits(bits)).to_bits())
        }
        _ => return None,
    };
    let width = ty.bits().min(64);
    Some(if ty == Type::Pred || width == 64 { bits } else { bits & ((1 << width) - 1) })
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'\\' => match rest.next() {
                Some(b'n') => b'\n',
                Some(b't') => b'\t',
                Some(b'r') => b'\r',
                Some(b'0') => 0,
                Some(other) => other,
                None => b'\\',
            },
            other => other,
        });
    }
    bytes
}
