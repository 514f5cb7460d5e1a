//! Calls. Arguments and results pass through areas behind the caller's frame in local memory, so
//! direct and indirect calls are alike and the address of a parameter is an address in local
//! memory, as PTX has it.

use crate::codegen::func::{FuncGen, Gen, PLAIN};
use crate::codegen::program::{HANDLE_BASE, HANDLE_SHIFT, Target, Unit};
use crate::codegen::types::int_of_size;
use crate::rt::access::Stop;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use cranelift_codegen::ir::{ExtFuncData, ExternalName, InstBuilder, UserExternalName, Value};
use outboard_ptx::ir::{Body, CallArg, Callee, Operand, Signature, VarId};

/// Alignment of frames and of argument and result areas.
const ALIGN: u64 = 16;

fn up(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN)
}

/// Bytes of local memory that an activation uses: its variables and the largest argument and result
/// areas of its calls.
pub(crate) fn frame_bytes(unit: &Unit, module: usize, body: &Body) -> u64 {
    let calls =
        body.blocks.iter().flat_map(|block| &block.insts).filter_map(|inst| match &inst.op {
            outboard_ptx::ir::Op::Call { callee, .. } => unit.signature(module, callee),
            _ => None,
        });
    let areas =
        calls.map(|sig| up(sig.params_size.into()) + up(sig.rets_size.into())).max().unwrap_or(0);
    up(body.frame_size.into()) + areas
}

impl FuncGen<'_, '_> {
    pub(crate) fn call(&mut self, callee: &Callee, rets: &[CallArg], args: &[CallArg]) -> Gen {
        let unit = self.unit;
        let sig: &Signature = match callee {
            Callee::Indirect { sig, .. } => sig,
            Callee::Direct(_) => unit
                .signature(self.module, callee)
                .ok_or("a call to a function that is not there")?,
        };
        let area = up(self.body.frame_size.into()) as i64;
        let args_at = self.b.ins().iadd_imm_s(self.at.frame, area);
        let rets_at = self.b.ins().iadd_imm_s(args_at, up(sig.params_size.into()) as i64);
        for (arg, param) in args.iter().zip(&sig.params) {
            let class = int_of_size(param.ty.size());
            match *arg {
                CallArg::Var(id) => {
                    self.copy(self.at.frame, self.var_offset(id), args_at, param.offset, param.size)
                }
                CallArg::Reg(reg) => {
                    let value = self.value(&Operand::Reg(reg), class);
                    self.b.ins().store(PLAIN, value, args_at, param.offset as i32);
                }
                CallArg::Imm(bits) => {
                    let value = self.value(&Operand::Imm(bits), class);
                    self.b.ins().store(PLAIN, value, args_at, param.offset as i32);
                }
                CallArg::Unused => {}
            }
        }
        let frame = self.b.ins().iadd_imm_s(self.at.frame, self.frame_bytes as i64);
        let passed = [self.at.block, self.at.thread, frame, args_at, rets_at];
        let call = match callee {
            Callee::Indirect { reg, .. } => {
                let handle = self.value(&Operand::Reg(*reg), I64);
                let code = self.look_up(handle);
                self.b.ins().call_indirect(self.entry_sig, code, &passed)
            }
            Callee::Direct(id) => match unit.target(self.module, *id)? {
                Target::Compiled(index) => {
                    let name = UserExternalName::new(0, unit.functions[index].clif.as_u32());
                    let name = ExternalName::user(self.b.func.declare_imported_user_function(name));
                    // Not colocated: parts of a program may lie farther apart than a near call
                    // reaches.
                    let data = ExtFuncData {
                        name,
                        signature: self.entry_sig,
                        colocated: false,
                        patchable: false,
                    };
                    let function = self.b.import_function(data);
                    self.b.ins().call(function, &passed)
                }
                Target::Runtime(address) => {
                    let code = self.iconst(I64, address as u64);
                    self.b.ins().call_indirect(self.entry_sig, code, &passed)
                }
            },
        };
        let status = self.b.inst_results(call)[0];
        self.return_unless_done(status);
        for (ret, param) in rets.iter().zip(&sig.rets) {
            match *ret {
                CallArg::Var(id) => {
                    self.copy(rets_at, param.offset, self.at.frame, self.var_offset(id), param.size)
                }
                CallArg::Reg(reg) => {
                    let value = self.b.ins().load(
                        int_of_size(param.ty.size()),
                        PLAIN,
                        rets_at,
                        param.offset as i32,
                    );
                    self.set_extended(reg, value, param.ty.is_signed());
                }
                CallArg::Imm(_) | CallArg::Unused => {}
            }
        }
        Ok(())
    }

    fn var_offset(&self, id: VarId) -> u32 {
        self.body.vars[id.0 as usize].offset
    }

    /// Copies `bytes` from one place in local memory to another, in the largest units.
    fn copy(&mut self, from: Value, from_offset: u32, to: Value, to_offset: u32, bytes: u32) {
        let mut done = 0;
        while done < bytes {
            let unit = [8, 4, 2, 1].into_iter().find(|unit| done + unit <= bytes).unwrap_or(1);
            let value =
                self.b.ins().load(int_of_size(unit), PLAIN, from, (from_offset + done) as i32);
            self.b.ins().store(PLAIN, value, to, (to_offset + done) as i32);
            done += unit;
        }
    }

    /// The code of the function that a handle names; anything else is a fault.
    fn look_up(&mut self, handle: Value) -> Value {
        let inner = self.b.ins().iadd_imm_s(handle, (HANDLE_BASE as i64).wrapping_neg());
        let index = self.b.ins().rotr_imm_u(inner, i64::from(HANDLE_SHIFT));
        let count = self.iconst(I64, self.unit.functions_in_table as u64);
        let bad = self.b.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, index, count);
        self.fault_if(bad, Stop::InvalidCall, handle);
        let table = self.iconst(I64, self.unit.table);
        let offset = self.b.ins().ishl_imm_u(index, 3);
        let slot = self.b.ins().iadd(table, offset);
        self.b.ins().load(I64, PLAIN, slot, 0)
    }
}
