//! Addresses, the checks on them, loads and stores.
//!
//! An address in device memory is checked with one comparison for range and alignment (the offset
//! in the arena, rotated so that low bits that must be zero become high ones) and one look-up in
//! the validity table. Windows (shared, local, parameters) need only the comparison. What the
//! compiler can see to be inside a variable needs none.

use crate::codegen::func::{FuncGen, Gen, PLAIN};
use crate::codegen::program::Place;
use crate::codegen::types::int_of_size;
use crate::exec::context::BlockContext;
use crate::fault::Space as FaultSpace;
use crate::memory::GRANULE_SHIFT;
use crate::rt::access::{access_info, resolve, window_fault};
use crate::rt::sync;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F32, I8, I32, I64};
use cranelift_codegen::ir::{InstBuilder, MemFlagsData, Value};
use outboard_ptx::Space;
use outboard_ptx::ir::{Address, Base, MemOrder, Op};
use std::mem::offset_of;

/// A range of addresses that a window covers.
#[derive(Clone, Copy)]
struct Window {
    base: Value,
    size: Value,
    space: FaultSpace,
}

impl FuncGen<'_, '_> {
    pub(crate) fn memory(&mut self, op: &Op) -> Gen {
        match op {
            Op::Ld { space, ty, order, dsts, addr, .. } => {
                let size = ty.size();
                let ptr = self.access(*space, addr, size * dsts.len() as u32)?;
                let strong = self.is_strong(*space, *order);
                for (i, dst) in dsts.iter().enumerate() {
                    let Some(dst) = dst else { continue };
                    let offset = i as u32 * size;
                    let value = if strong && size <= 8 {
                        let at = self.b.ins().iadd_imm_s(ptr, i64::from(offset));
                        self.b.ins().atomic_load(int_of_size(size), MemFlagsData::trusted(), at)
                    } else {
                        let class = self.class(*dst, *ty);
                        self.b.ins().load(class, PLAIN, ptr, offset as i32)
                    };
                    self.set_extended(*dst, value, ty.is_signed());
                }
            }
            Op::St { space, ty, order, srcs, addr, .. } => {
                let size = ty.size();
                let ptr = self.access(*space, addr, size * srcs.len() as u32)?;
                let strong = self.is_strong(*space, *order);
                for (i, src) in srcs.iter().enumerate() {
                    let offset = i as u32 * size;
                    if strong && size <= 8 && !cfg!(target_arch = "x86_64") {
                        let value = self.value(src, int_of_size(size));
                        let at = self.b.ins().iadd_imm_s(ptr, i64::from(offset));
                        self.b.ins().atomic_store(MemFlagsData::trusted(), value, at);
                    } else {
                        // On x86-64 every store releases, and no store is moved or dropped by the
                        // compiler.
                        let class = self.source_class(src, *ty);
                        let mut value = self.value(src, class);
                        if class == F32 && self.is_computed(src) {
                            value = self.canonical(value);
                        }
                        self.b.ins().store(PLAIN, value, ptr, offset as i32);
                    }
                }
            }
            Op::CpAsync { bytes, src_bytes, ignore_src, dst, src } => {
                let to = self.access(Space::Shared, dst, *bytes)?;
                let mut count = match src_bytes {
                    Some(n) => self.value(n, I32),
                    None => self.iconst(I32, (*bytes).into()),
                };
                if let Some(ignore) = ignore_src {
                    let (ignore, zero) = (self.pred(ignore), self.iconst(I32, 0));
                    count = self.choose(ignore, zero, count);
                }
                // A source that is not read need not be there.
                let (read, copy) = (self.b.create_block(), self.b.create_block());
                self.b.append_block_param(copy, I64);
                self.b.ins().brif(count, read, &[], copy, &[to.into()]);
                self.b.switch_to_block(read);
                let checked = self.checked.len();
                let from = self.access(Space::Global, src, *bytes)?;
                self.checked.truncate(checked);
                self.b.ins().jump(copy, &[from.into()]);
                self.b.switch_to_block(copy);
                let from = self.b.block_params(copy)[0];
                let bytes = self.iconst(I32, (*bytes).into());
                self.rt(sync::copy_async as *const () as usize, None, &[to, from, bytes, count]);
            }
            Op::Fence { .. } => _ = self.b.ins().fence(),
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    /// Whether an access must go to memory each time, seen by threads on other processors.
    fn is_strong(&self, space: Space, order: MemOrder) -> bool {
        // The threads of a block share one processor, so shared memory needs no more than order
        // within the thread.
        order != MemOrder::Weak && matches!(space, Space::Generic | Space::Global)
    }

    /// The machine address of an access of `size` bytes in all, checked.
    pub(crate) fn access(&mut self, space: Space, addr: &Address, size: u32) -> Gen<Value> {
        let Address { base, offset } = *addr;
        let aligned = |at: i64| at.rem_euclid(size.next_power_of_two().into()) == 0;
        let inside = |at: i64, length: u64| {
            at >= 0 && at.checked_add(size.into()).is_some_and(|end| end as u64 <= length)
        };
        match base {
            Base::Global(id) => match self.unit.place(self.module, id)? {
                Place::Memory { addr, size: length } => {
                    let at = (addr as i64).wrapping_add(offset);
                    let value = self.iconst(I64, at as u64);
                    if !(inside(offset, length) && aligned(at)) {
                        self.check(value, value, 0, size, fault_space(space));
                    }
                    Ok(value)
                }
                Place::Shared { offset: start, size: length } => {
                    let at = i64::from(start) + offset;
                    if inside(offset, length) && aligned(at) {
                        return Ok(self.b.ins().iadd_imm_s(self.at.shared_base, at));
                    }
                    let at = self.iconst(I64, at as u64);
                    Ok(self.check_window(self.shared(), at, size))
                }
                Place::Dynamic => {
                    let start = self.load_uniform(
                        I64,
                        self.at.block,
                        offset_of!(BlockContext, dynamic_offset),
                    );
                    let at = self.b.ins().iadd_imm_s(start, offset);
                    Ok(self.check_window(self.shared(), at, size))
                }
            },
            Base::Var(id) => {
                let var = &self.body.vars[id.0 as usize];
                let at = i64::from(var.offset) + offset;
                let ptr = self.b.ins().iadd_imm_s(self.at.frame, at);
                if inside(offset, var.size.into()) && aligned(at) {
                    return Ok(ptr);
                }
                let at = self.b.ins().isub(ptr, self.at.local_base);
                Ok(self.check_window(self.local(), at, size))
            }
            Base::Param(index) => {
                let param = self
                    .func
                    .sig
                    .params
                    .get(index as usize)
                    .ok_or("a parameter that is not there")?;
                let at = i64::from(param.offset) + offset;
                if inside(at, self.func.sig.params_size.into()) && aligned(at) {
                    return Ok(self.b.ins().iadd_imm_s(self.at.args, at));
                }
                let at = self.iconst(I64, at as u64);
                let size_value = self.iconst(I64, self.func.sig.params_size.into());
                let window =
                    Window { base: self.at.args, size: size_value, space: FaultSpace::Param };
                Ok(self.check_window(window, at, size))
            }
            Base::Ret(index) => {
                let ret =
                    self.func.sig.rets.get(index as usize).ok_or("a result that is not there")?;
                let at = i64::from(ret.offset) + offset;
                if !inside(at, self.func.sig.rets_size.into()) {
                    return Err("an access outside of the result area".into());
                }
                Ok(self.b.ins().iadd_imm_s(self.at.rets, at))
            }
            Base::Reg(reg) => {
                let value = self.reg(reg);
                Ok(self.access_value(space, value, offset, size))
            }
            Base::None => {
                let value = self.iconst(I64, offset as u64);
                Ok(self.access_value(space, value, 0, size))
            }
            Base::Func(_) => Err("an access to the code of a function".into()),
        }
    }

    /// The machine address of an access at a computed address in `space`.
    fn access_value(&mut self, space: Space, base: Value, offset: i64, size: u32) -> Value {
        // Offsets in a window that 32-bit registers hold are added in 32 bits, as hardware does.
        let base = self.as_int(base);
        let at = if offset == 0 { base } else { self.b.ins().iadd_imm_s(base, offset) };
        let at = self.cast(at, I64);
        let window = match space {
            Space::Shared => self.shared(),
            Space::Local => self.local(),
            // Parameters of functions lie in local memory; those of kernels have a buffer.
            Space::Param if self.func.entry.is_none() => self.local(),
            Space::Param => {
                let size = self.iconst(I64, self.func.sig.params_size.into());
                Window { base: self.at.args, size, space: FaultSpace::Param }
            }
            Space::Generic | Space::Global | Space::Const => {
                self.check(at, base, offset, size, fault_space(space));
                return at;
            }
        };
        let known = self.is_checked(window.space, base, offset, size);
        if known {
            return self.b.ins().iadd(window.base, at);
        }
        let ptr = self.check_window(window, at, size);
        self.checked.push((window.space, base, offset, size));
        ptr
    }

    /// Whether an access is covered by one that was checked before in this block of code.
    fn is_checked(&self, space: FaultSpace, base: Value, offset: i64, size: u32) -> bool {
        self.checked.iter().any(|&(s, b, start, bytes)| {
            s == space
                && b == base
                && offset >= start
                && offset + i64::from(size) <= start + i64::from(bytes)
                && (offset - start) % i64::from(size) == 0
        })
    }

    fn shared(&self) -> Window {
        Window { base: self.at.shared_base, size: self.at.shared_size, space: FaultSpace::Shared }
    }

    fn local(&self) -> Window {
        Window { base: self.at.local_base, size: self.at.local_size, space: FaultSpace::Local }
    }

    /// Checks that `size` bytes at `at` (`base + offset`) are device memory, once per block of
    /// code.
    fn check(&mut self, at: Value, base: Value, offset: i64, size: u32, space: FaultSpace) {
        // Which of these spaces an instruction names only matters for messages.
        if self.is_checked(FaultSpace::Generic, base, offset, size) {
            return;
        }
        let shift = size.trailing_zeros();
        let inner = self.b.ins().isub(at, self.at.arena_base);
        let rotated =
            if shift == 0 { inner } else { self.b.ins().rotr_imm_u(inner, i64::from(shift)) };
        let limit = self.iconst(I64, self.unit.arena_span >> shift);
        let (look_up, bad, good) =
            (self.b.create_block(), self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        let in_range = self.b.ins().icmp(IntCC::UnsignedLessThan, rotated, limit);
        self.b.ins().brif(in_range, look_up, &[], bad, &[]);
        self.b.switch_to_block(look_up);
        let index = self.b.ins().ushr_imm_u(rotated, i64::from(GRANULE_SHIFT - shift));
        let entry = self.b.ins().iadd(self.at.table, index);
        let valid = self.b.ins().load(I8, PLAIN, entry, 0);
        self.b.ins().brif(valid, good, &[], bad, &[]);
        self.b.switch_to_block(bad);
        let (site, info) = (self.site(), self.iconst(I64, access_info(size, space)));
        let thread = self.at.thread;
        let found = self.rt_value(resolve as *const () as usize, I64, &[thread, at, site, info]);
        self.leave_if_zero(found, good);
        self.b.switch_to_block(good);
        self.checked.push((FaultSpace::Generic, base, offset, size));
    }

    /// Checks an offset against a window and gives the machine address.
    fn check_window(&mut self, window: Window, at: Value, size: u32) -> Value {
        let ptr = self.b.ins().iadd(window.base, at);
        let shift = size.trailing_zeros();
        let rotated = if shift == 0 { at } else { self.b.ins().rotr_imm_u(at, i64::from(shift)) };
        let limit = if shift == 0 {
            window.size
        } else {
            self.b.ins().ushr_imm_u(window.size, i64::from(shift))
        };
        let (bad, good) = (self.b.create_block(), self.b.create_block());
        self.b.set_cold_block(bad);
        let in_range = self.b.ins().icmp(IntCC::UnsignedLessThan, rotated, limit);
        self.b.ins().brif(in_range, good, &[], bad, &[]);
        self.b.switch_to_block(bad);
        let (site, info) = (self.site(), self.iconst(I64, access_info(size, window.space)));
        let thread = self.at.thread;
        self.rt(window_fault as *const () as usize, Some(I32), &[thread, at, site, info]);
        self.leave_with_fault();
        self.b.switch_to_block(good);
        ptr
    }

    pub(crate) fn addressing(&mut self, op: &Op) -> Gen {
        match *op {
            Op::MovAddr { dst, ref addr } => {
                let value = self.address_of(addr)?;
                self.set(dst, value);
            }
            Op::Cvta { to, space, dst, ref a } => {
                let value = self.value(a, I64);
                let base = match space {
                    Space::Shared => Some(self.at.shared_base),
                    Space::Local => Some(self.at.local_base),
                    Space::Param if self.func.entry.is_some() => Some(self.at.args),
                    Space::Param => Some(self.at.local_base),
                    Space::Global | Space::Const | Space::Generic => None,
                };
                let result = match base {
                    None => value,
                    Some(base) if to => self.b.ins().isub(value, base),
                    Some(base) => self.b.ins().iadd(value, base),
                };
                self.set(dst, result);
            }
            Op::Isspacep { space, dst, ref a } => {
                let value = self.value(a, I64);
                let result = match space {
                    Space::Shared => self.is_within(value, self.shared()),
                    Space::Local => self.is_within(value, self.local()),
                    Space::Param => {
                        let size = self.iconst(I64, self.func.sig.params_size.into());
                        let window = Window { base: self.at.args, size, space: FaultSpace::Param };
                        self.is_within(value, window)
                    }
                    Space::Const => self.is_constant(value),
                    _ => {
                        let (shared, local) = (
                            self.is_within(value, self.shared()),
                            self.is_within(value, self.local()),
                        );
                        let constant = self.is_constant(value);
                        let other = self.b.ins().bor(shared, local);
                        let other = self.b.ins().bor(other, constant);
                        self.b.ins().bxor_imm_s(other, 1)
                    }
                };
                self.set(dst, result);
            }
            _ => return Err(format!("{op:?}").into()),
        }
        Ok(())
    }

    fn is_within(&mut self, value: Value, window: Window) -> Value {
        let inner = self.b.ins().isub(value, window.base);
        self.b.ins().icmp(IntCC::UnsignedLessThan, inner, window.size)
    }

    fn is_constant(&mut self, value: Value) -> Value {
        let mut result = self.iconst(I8, 0);
        for &(start, bytes) in &self.unit.constants {
            let inner = self.b.ins().iadd_imm_s(value, (start as i64).wrapping_neg());
            let bytes = self.iconst(I64, bytes);
            let within = self.b.ins().icmp(IntCC::UnsignedLessThan, inner, bytes);
            result = self.b.ins().bor(result, within);
        }
        result
    }

    /// The address of a symbol in its own space.
    fn address_of(&mut self, addr: &Address) -> Gen<Value> {
        let Address { base, offset } = *addr;
        Ok(match base {
            Base::Global(id) => match self.unit.place(self.module, id)? {
                Place::Memory { addr, .. } => self.iconst(I64, addr.wrapping_add(offset as u64)),
                Place::Shared { offset: start, .. } => {
                    self.iconst(I64, (i64::from(start) + offset) as u64)
                }
                Place::Dynamic => {
                    let start = self.load_uniform(
                        I64,
                        self.at.block,
                        offset_of!(BlockContext, dynamic_offset),
                    );
                    self.b.ins().iadd_imm_s(start, offset)
                }
            },
            Base::Func(id) => {
                let handle = self.unit.handle(self.module, id)?;
                self.iconst(I64, handle)
            }
            Base::Var(id) => {
                let at = i64::from(self.body.vars[id.0 as usize].offset) + offset;
                let ptr = self.b.ins().iadd_imm_s(self.at.frame, at);
                self.b.ins().isub(ptr, self.at.local_base)
            }
            Base::Param(index) => {
                let param = self
                    .func
                    .sig
                    .params
                    .get(index as usize)
                    .ok_or("a parameter that is not there")?;
                let at = i64::from(param.offset) + offset;
                if self.func.entry.is_some() {
                    self.iconst(I64, at as u64)
                } else {
                    let ptr = self.b.ins().iadd_imm_s(self.at.args, at);
                    self.b.ins().isub(ptr, self.at.local_base)
                }
            }
            Base::Ret(_) => return Err("the address of a result".into()),
            Base::Reg(reg) => {
                let value = self.reg(reg);
                let value = self.cast(value, I64);
                self.b.ins().iadd_imm_s(value, offset)
            }
            Base::None => self.iconst(I64, offset as u64),
        })
    }
}

fn fault_space(space: Space) -> FaultSpace {
    match space {
        Space::Generic => FaultSpace::Generic,
        Space::Global => FaultSpace::Global,
        Space::Const => FaultSpace::Const,
        Space::Shared => FaultSpace::Shared,
        Space::Local => FaultSpace::Local,
        Space::Param => FaultSpace::Param,
    }
}
