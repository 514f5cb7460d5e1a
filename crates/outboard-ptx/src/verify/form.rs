//! The modifiers of one instruction, ticked off one by one.

use crate::ast::{Inst, Operand};
use crate::error::ErrorKind;
use crate::ir::{CmpOp, MemOrder, Round, Scope};
use crate::types::{Space, Type};

/// A lowering step takes the modifiers it knows; [`Form::finish`] then refuses an instruction that
/// has others, so no modifier is ever ignored by accident.
pub(super) struct Form<'i, 's> {
    pub(super) inst: &'i Inst<'s>,
    /// Bit per modifier (the parser bounds their number).
    used: u32,
}

impl<'i, 's> Form<'i, 's> {
    pub(super) fn new(inst: &'i Inst<'s>) -> Self {
        Form { inst, used: 0 }
    }

    /// The instruction as a whole is not supported.
    pub(super) fn unsupported(&self) -> ErrorKind {
        ErrorKind::UnsupportedInstruction(self.inst.form())
    }

    /// The operands are wrong.
    pub(super) fn operands_error(&self, reason: impl Into<String>) -> ErrorKind {
        ErrorKind::Operands { form: self.inst.form(), reason: reason.into() }
    }

    /// Takes the first unused modifier for which `pick` gives a value.
    fn take<T>(&mut self, mut pick: impl FnMut(&'s str) -> Option<T>) -> Option<T> {
        for (index, modifier) in self.inst.mods.iter().enumerate() {
            let bit = 1u32 << index.min(31);
            if self.used & bit == 0
                && let Some(value) = pick(modifier)
            {
                self.used |= bit;
                return Some(value);
            }
        }
        None
    }

    /// Takes the modifier `name` if present.
    pub(super) fn flag(&mut self, name: &str) -> bool {
        self.take(|modifier| (modifier == name).then_some(())).is_some()
    }

    /// Takes the first modifier that is one of `choices` and gives what stands beside it.
    pub(super) fn choice<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        self.take(|modifier| {
            choices.iter().find(|(name, _)| *name == modifier).map(|&(_, value)| value)
        })
    }

    /// As [`Form::choice`], where one must be present.
    pub(super) fn one_of<T: Copy>(&mut self, choices: &[(&str, T)]) -> Result<T, ErrorKind> {
        self.choice(choices).ok_or_else(|| self.unsupported())
    }

    /// Takes the next type.
    pub(super) fn maybe_ty(&mut self) -> Option<Type> {
        self.take(Type::from_name)
    }

    /// Takes the next type, which must be there.
    pub(super) fn ty(&mut self) -> Result<Type, ErrorKind> {
        self.maybe_ty().ok_or_else(|| self.unsupported())
    }

    /// Takes the next type, which must be one of `allowed`.
    pub(super) fn ty_in(&mut self, allowed: &[Type]) -> Result<Type, ErrorKind> {
        let ty = self.ty()?;
        if allowed.contains(&ty) { Ok(ty) } else { Err(self.unsupported()) }
    }

    pub(super) fn round(&mut self) -> Option<Round> {
        self.choice(&[
            ("rn", Round::NearestEven),
            ("rz", Round::Zero),
            ("rm", Round::Down),
            ("rp", Round::Up),
            ("rna", Round::NearestAway),
        ])
    }

    pub(super) fn int_round(&mut self) -> Option<Round> {
        self.choice(&[
            ("rni", Round::NearestEven),
            ("rzi", Round::Zero),
            ("rmi", Round::Down),
            ("rpi", Round::Up),
        ])
    }

    /// Takes a state space; `Generic` if none is named.
    pub(super) fn space(&mut self) -> Space {
        self.choice(&[
            ("global", Space::Global),
            ("const", Space::Const),
            ("shared", Space::Shared),
            ("shared::cta", Space::Shared),
            // A cluster is a single block on this device.
            ("shared::cluster", Space::Shared),
            ("local", Space::Local),
            ("param", Space::Param),
            ("param::entry", Space::Param),
            ("param::func", Space::Param),
        ])
        .unwrap_or(Space::Generic)
    }

    pub(super) fn scope(&mut self) -> Option<Scope> {
        self.choice(&[
            ("cta", Scope::Cta),
            ("cluster", Scope::Cluster),
            ("gpu", Scope::Gpu),
            ("sys", Scope::Sys),
        ])
    }

    pub(super) fn order(&mut self) -> Option<MemOrder> {
        self.choice(&[
            ("weak", MemOrder::Weak),
            ("volatile", MemOrder::Volatile),
            ("relaxed", MemOrder::Relaxed),
            ("acquire", MemOrder::Acquire),
            ("release", MemOrder::Release),
            ("acq_rel", MemOrder::AcqRel),
        ])
    }

    /// Takes a vector size; 1 if there is none.
    pub(super) fn vector(&mut self) -> usize {
        self.choice(&[("v2", 2), ("v4", 4), ("v8", 8)]).unwrap_or(1)
    }

    pub(super) fn cmp(&mut self) -> Result<CmpOp, ErrorKind> {
        self.one_of(&[
            ("eq", CmpOp::Eq),
            ("ne", CmpOp::Ne),
            ("lt", CmpOp::Lt),
            ("le", CmpOp::Le),
            ("gt", CmpOp::Gt),
            ("ge", CmpOp::Ge),
            ("lo", CmpOp::Lt),
            ("ls", CmpOp::Le),
            ("hi", CmpOp::Gt),
            ("hs", CmpOp::Ge),
            ("equ", CmpOp::Equ),
            ("neu", CmpOp::Neu),
            ("ltu", CmpOp::Ltu),
            ("leu", CmpOp::Leu),
            ("gtu", CmpOp::Gtu),
            ("geu", CmpOp::Geu),
            ("num", CmpOp::Num),
            ("nan", CmpOp::Nan),
        ])
    }

    /// Takes cache hints, which change nothing here. True if one of them adds a policy operand.
    pub(super) fn cache_hints(&mut self) -> bool {
        let mut policy = false;
        while let Some(hint) = self.take(|modifier| {
            let passive = modifier.starts_with("L1::")
                || modifier.starts_with("L2::")
                || matches!(
                    modifier,
                    "ca" | "cg" | "cs" | "lu" | "cv" | "wb" | "wt" | "nc" | "unified"
                );
            passive.then_some(modifier)
        }) {
            policy |= hint == "L2::cache_hint";
        }
        policy
    }

    /// True if the modifier is there, without taking it.
    pub(super) fn has(&self, name: &str) -> bool {
        self.inst.mods.contains(&name)
    }

    /// Refuses the instruction if a modifier is left.
    pub(super) fn finish(&self) -> Result<(), ErrorKind> {
        let all = (1u64 << self.inst.mods.len().min(32)) - 1;
        if u64::from(self.used) == all { Ok(()) } else { Err(self.unsupported()) }
    }

    /// Exactly `N` operands, after [`Form::finish`].
    pub(super) fn operands<const N: usize>(&self) -> Result<&'i [Operand<'s>; N], ErrorKind> {
        self.finish()?;
        self.inst.operands.as_slice().try_into().map_err(|_| {
            self.operands_error(format!(
                "{N} operands expected, found {}",
                self.inst.operands.len()
            ))
        })
    }

    /// `least` to `most` operands, after [`Form::finish`].
    pub(super) fn operands_between(
        &self,
        least: usize,
        most: usize,
    ) -> Result<&'i [Operand<'s>], ErrorKind> {
        self.finish()?;
        let found = self.inst.operands.len();
        if (least..=most).contains(&found) {
            return Ok(&self.inst.operands);
        }
        Err(self.operands_error(format!("{least} to {most} operands expected, found {found}")))
    }
}
