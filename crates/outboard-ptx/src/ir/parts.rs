//! What some operations are made of.
#![expect(missing_docs, reason = "fields without docs are operands of the PTX instruction")]

use super::{FuncId, Operand, Reg, Signature, VarId};

/// Who is called.
#[derive(Clone, Debug, PartialEq)]
pub enum Callee {
    Direct(FuncId),
    /// Address in a 64-bit register, with the layout of the prototype.
    Indirect {
        reg: Reg,
        sig: Box<Signature>,
    },
}

/// One argument or result of a call: where the caller keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallArg {
    /// A `.param` variable in the caller's frame, as large as the parameter.
    Var(VarId),
    /// A register, as wide as the parameter's type. A predicate counts as one byte.
    Reg(Reg),
    /// Only as an argument.
    Imm(u64),
    /// A result that nobody reads.
    Unused,
}

/// The operation of an `mbarrier` instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MbarrierOp {
    Init {
        count: Operand,
    },
    Inval,
    /// `arrive` (and `arrive.noComplete`): the state token goes to `state`. `drop` also lowers the
    /// expected count of the following phases. `expect_tx` adds to the pending transaction count
    /// before the arrival.
    Arrive {
        state: Option<Reg>,
        count: Operand,
        drop: bool,
        expect_tx: Option<Operand>,
    },
    /// Adds to the pending transaction count.
    ExpectTx {
        count: Operand,
    },
    /// Takes from the pending transaction count.
    CompleteTx {
        count: Operand,
    },
    /// Tests whether the phase of the state token is complete; may wait a bounded time when `wait`
    /// is set.
    Test {
        dst: Reg,
        state: Operand,
        wait: bool,
    },
    /// As `Test`, for the phase of the given parity (0 or 1).
    TestParity {
        dst: Reg,
        parity: Operand,
        wait: bool,
    },
    /// The pending count of a state token (the address is not used).
    PendingCount {
        dst: Reg,
        state: Operand,
    },
    /// `cp.async.mbarrier.arrive`: arrives once the copies started by this thread are complete.
    /// When `noinc` is not set, the pending count is raised first, so that the arrival does not
    /// count.
    CpAsyncArrive {
        noinc: bool,
    },
}
