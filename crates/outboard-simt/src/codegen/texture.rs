//! Texture and surface instructions: calls of the runtime, with operands and results in the
//! thread's exchange area.

use crate::codegen::func::{CONTEXT, FuncGen, Gen};
use crate::exec::context::{EXCHANGE_VALUES, ThreadContext};
use crate::rt::texture::{self, Kind, encode, encode_query};
use cranelift_codegen::ir::types::{I32, I64};
use cranelift_codegen::ir::{InstBuilder, Value};
use outboard_ptx::Type;
use outboard_ptx::ir::{Fetch, Op, Operand};
use std::mem::offset_of;

/// Offset of a word of the exchange area.
fn word(index: usize) -> i32 {
    (offset_of!(ThreadContext, exchange) + 4 * index) as i32
}

impl FuncGen<'_, '_> {
    pub(crate) fn texture(&mut self, op: &Op) -> Gen {
        match op {
            Op::Tex { fetch, geometry, coord_ty, ty, dsts, object, coords, level } => {
                self.give(coords);
                let bits = match level {
                    Some(level) => self.value(level, I32),
                    None => self.iconst(I32, 0),
                };
                self.b.ins().store(CONTEXT, bits, self.at.thread, word(4));
                let kind = match fetch {
                    Fetch::Sample => Kind::Sample { float: *coord_ty == Type::F32 },
                    Fetch::Gather(component) => Kind::Gather { component: *component },
                };
                self.call_texture(object, encode(kind, *geometry));
                for (index, dst) in dsts.iter().enumerate() {
                    let Some(dst) = dst else { continue };
                    let value = self.b.ins().load(
                        I32,
                        CONTEXT,
                        self.at.thread,
                        word(EXCHANGE_VALUES + index),
                    );
                    self.set_extended(*dst, value, ty.is_signed());
                }
            }
            Op::SurfaceLoad { geometry, ty, boundary, dsts, object, coords } => {
                self.give(coords);
                let (bytes, count) = (ty.size() as u8, dsts.len() as u8);
                self.call_texture(
                    object,
                    encode(Kind::Load { bytes, count, boundary: *boundary }, *geometry),
                );
                for (index, dst) in dsts.iter().enumerate() {
                    let Some(dst) = dst else { continue };
                    let class = crate::codegen::types::int_of_size(ty.size());
                    let value = self.b.ins().load(
                        class,
                        CONTEXT,
                        self.at.thread,
                        word(EXCHANGE_VALUES + 2 * index),
                    );
                    self.set(*dst, value);
                }
            }
            Op::SurfaceStore { geometry, ty, boundary, srcs, object, coords } => {
                self.give(coords);
                for (index, src) in srcs.iter().enumerate() {
                    let value = self.value(src, I64);
                    self.b.ins().store(
                        CONTEXT,
                        value,
                        self.at.thread,
                        word(EXCHANGE_VALUES + 2 * index),
                    );
                }
                let (bytes, count) = (ty.size() as u8, srcs.len() as u8);
                self.call_texture(
                    object,
                    encode(Kind::Store { bytes, count, boundary: *boundary }, *geometry),
                );
            }
            Op::TextureQuery { query, surface, dst, object } => {
                let object = self.value(object, I64);
                let code = self.iconst(I64, encode_query(*query, *surface));
                let thread = self.at.thread;
                let answer = self.rt_value(
                    texture::query as *const () as usize,
                    I32,
                    &[thread, object, code],
                );
                self.set(*dst, answer);
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    /// Puts coordinates where the runtime finds them.
    fn give(&mut self, coords: &[Operand]) {
        for (index, coord) in coords.iter().enumerate() {
            let bits = self.value(coord, I32);
            self.b.ins().store(CONTEXT, bits, self.at.thread, word(index));
        }
    }

    fn call_texture(&mut self, object: &Operand, code: u64) {
        let object = self.value(object, I64);
        let (code, site): (Value, Value) = (self.iconst(I64, code), self.site());
        let thread = self.at.thread;
        let status = self.rt_value(
            texture::texture as *const () as usize,
            I32,
            &[thread, object, code, site],
        );
        self.return_unless_done(status);
    }
}
