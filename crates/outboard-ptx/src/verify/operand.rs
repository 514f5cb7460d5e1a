//! Operands: from names and constants to registers, immediates and addresses, with their widths
//! checked.

use super::form::Form;
use super::init::scalar_bits;
use super::lower::{Lower, Name};
use super::special::special;
use crate::ast::{self, Const};
use crate::error::{ErrorKind, excerpt};
use crate::ir::{Address, Base, Op, Operand, PredOperand, Reg, SpecialReg};
use crate::types::{Space, Type};

/// How strictly a register's declared type must agree with the instruction's.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    /// Same width, and not an integer register for a floating-point operand or the other way round.
    Exact,
    /// Same width.
    SameWidth,
    /// At least as wide: loads, stores and conversions.
    Wider,
}

fn fits(reg: Type, ty: Type, fit: Fit) -> bool {
    if (reg == Type::Pred) != (ty == Type::Pred) {
        return false;
    }
    match fit {
        Fit::Wider => reg.size() >= ty.size(),
        Fit::SameWidth => reg.size() == ty.size(),
        Fit::Exact => {
            let clash = (reg.is_integer() && ty.is_float()) || (reg.is_float() && ty.is_integer());
            reg.size() == ty.size() && !clash
        }
    }
}

impl<'s> Lower<'_, 's> {
    /// The declared type of a register.
    pub(super) fn reg_ty(&self, reg: Reg) -> Type {
        self.regs[reg.0 as usize]
    }

    /// The register `operand` names, of whatever type; a component of a vector register included.
    pub(super) fn any_reg(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
    ) -> Result<Reg, ErrorKind> {
        let ast::Operand::Name { name, suffix, addend: 0 } = operand else {
            return Err(form.operands_error("a register is expected"));
        };
        if special(name, *suffix).is_some() {
            return Err(form.operands_error(format!(
                "special register '{}' cannot stand here",
                excerpt(name)
            )));
        }
        match (self.look_up(name)?, suffix) {
            (Name::Reg(reg), None) => Ok(reg),
            (Name::VectorReg(regs), Some(suffix)) => {
                let index = match *suffix {
                    "x" | "r" => 0,
                    "y" | "g" => 1,
                    "z" | "b" => 2,
                    "w" | "a" => 3,
                    _ => usize::MAX,
                };
                regs.get(index).copied().ok_or_else(|| {
                    form.operands_error(format!(
                        "'{}' has no '.{}'",
                        excerpt(name),
                        excerpt(suffix)
                    ))
                })
            }
            _ => Err(form.operands_error(format!(
                "'{}' is not a register that can stand here",
                excerpt(name)
            ))),
        }
    }

    fn checked(
        &mut self,
        form: &Form<'_, 's>,
        reg: Reg,
        ty: Type,
        fit: Fit,
    ) -> Result<Reg, ErrorKind> {
        let declared = self.reg_ty(reg);
        if fits(declared, ty, fit) {
            return Ok(reg);
        }
        Err(form.operands_error(format!("a register of type {declared} does not fit type {ty}")))
    }

    /// A destination register for `ty`.
    pub(super) fn dst(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
    ) -> Result<Reg, ErrorKind> {
        self.dst_fit(form, operand, ty, Fit::Exact)
    }

    pub(super) fn dst_fit(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
        fit: Fit,
    ) -> Result<Reg, ErrorKind> {
        let reg = self.any_reg(form, operand)?;
        self.checked(form, reg, ty, fit)
    }

    /// A destination register, or `None` for the sink `_`.
    pub(super) fn dst_or_sink(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
        fit: Fit,
    ) -> Result<Option<Reg>, ErrorKind> {
        match operand {
            ast::Operand::Sink => Ok(None),
            _ => self.dst_fit(form, operand, ty, fit).map(Some),
        }
    }

    /// `d` or `d|p`: a destination of type `ty` and an optional predicate.
    pub(super) fn dst_and_pred(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
    ) -> Result<(Option<Reg>, Option<Reg>), ErrorKind> {
        match operand {
            ast::Operand::Pair(first, second) => Ok((
                self.dst_or_sink(form, first, ty, Fit::Exact)?,
                self.dst_or_sink(form, second, Type::Pred, Fit::Exact)?,
            )),
            _ => Ok((self.dst_or_sink(form, operand, ty, Fit::Exact)?, None)),
        }
    }

    /// A source of type `ty`.
    pub(super) fn src(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
    ) -> Result<Operand, ErrorKind> {
        self.src_fit(form, operand, ty, Fit::Exact)
    }

    pub(super) fn src_fit(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
        fit: Fit,
    ) -> Result<Operand, ErrorKind> {
        match operand {
            ast::Operand::Const(value) => self.imm(form, *value, ty),
            ast::Operand::Name { name, suffix, addend } => {
                if let Some(sreg) = special(name, *suffix) {
                    return self.special_src(form, sreg, ty);
                }
                if suffix.is_none()
                    && let Some(base) = self.symbol(name)?
                {
                    if ty.size() != 8 && ty.size() != 4 {
                        return Err(
                            form.operands_error(format!("an address does not fit type {ty}"))
                        );
                    }
                    let dst = self.new_reg(if ty.size() == 8 { Type::B64 } else { Type::B32 });
                    self.emit_always(Op::MovAddr { dst, addr: Address { base, offset: *addend } });
                    return Ok(Operand::Reg(dst));
                }
                let reg = self.any_reg(form, operand)?;
                self.checked(form, reg, ty, fit).map(Operand::Reg)
            }
            _ => Err(form.operands_error("a register or a constant is expected")),
        }
    }

    /// A constant as an immediate of type `ty`.
    pub(super) fn imm(
        &self,
        form: &Form<'_, 's>,
        value: Const,
        ty: Type,
    ) -> Result<Operand, ErrorKind> {
        scalar_bits(value, ty)
            .map(Operand::Imm)
            .ok_or_else(|| form.operands_error(format!("a constant does not fit type {ty}")))
    }

    fn special_src(
        &mut self,
        form: &Form<'_, 's>,
        sreg: SpecialReg,
        ty: Type,
    ) -> Result<Operand, ErrorKind> {
        let natural = sreg.ty();
        let dst = self.new_reg(natural);
        self.emit_always(Op::MovSpecial { dst, sreg });
        if natural.size() == ty.size() && (natural == Type::Pred) == (ty == Type::Pred) {
            return Ok(Operand::Reg(dst));
        }
        if natural == Type::Pred || ty.is_float() || ty == Type::Pred || ty.size() > 8 {
            return Err(form.operands_error(format!("a special register does not fit type {ty}")));
        }
        let to = match ty.size() {
            1 => Type::U8,
            2 => Type::U16,
            4 => Type::U32,
            _ => Type::U64,
        };
        let wide = self.new_reg(to);
        self.emit_always(Op::Cvt {
            dst_ty: to,
            src_ty: natural,
            round: None,
            int_round: None,
            ftz: false,
            sat: false,
            satfinite: false,
            relu: false,
            dst: wide,
            a: Operand::Reg(dst),
        });
        Ok(Operand::Reg(wide))
    }

    /// A predicate source: `p`, `!p`, or a constant.
    pub(super) fn pred(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
    ) -> Result<PredOperand, ErrorKind> {
        if let ast::Operand::Not { name } = operand {
            let plain = ast::Operand::Name { name, suffix: None, addend: 0 };
            return Ok(PredOperand { value: self.src(form, &plain, Type::Pred)?, negated: true });
        }
        Ok(PredOperand { value: self.src(form, operand, Type::Pred)?, negated: false })
    }

    /// The address base that `name` stands for, unless it is a register.
    pub(super) fn symbol(&mut self, name: &'s str) -> Result<Option<Base>, ErrorKind> {
        Ok(Some(match self.look_up(name)? {
            Name::Var(id) => Base::Var(id),
            Name::Param(index) => Base::Param(index),
            Name::Ret(index) => Base::Ret(index),
            Name::Global(id) => Base::Global(id),
            Name::Func(id) => Base::Func(id),
            _ => return Ok(None),
        }))
    }

    /// An address operand of an access in `space`. An access without a state space to a variable
    /// takes the variable's.
    pub(super) fn addr(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        space: Space,
    ) -> Result<(Space, Address), ErrorKind> {
        let ast::Operand::Address { base, offset } = operand else {
            return Err(form.operands_error("an address such as [%rd1+4] is expected"));
        };
        let Some(name) = base else {
            return Ok((space, Address { base: Base::None, offset: *offset }));
        };
        let Some(base) = self.symbol(name)? else {
            let plain = ast::Operand::Name { name, suffix: None, addend: 0 };
            let reg = self.any_reg(form, &plain)?;
            let declared = self.reg_ty(reg);
            let narrow = !matches!(space, Space::Global | Space::Generic);
            let fits = declared.size() == 8 || (declared.size() == 4 && narrow);
            if !fits || declared.is_float() {
                return Err(form.operands_error(format!(
                    "a register of type {declared} cannot be an address here"
                )));
            }
            return Ok((space, Address { base: Base::Reg(reg), offset: *offset }));
        };
        let home = match base {
            Base::Global(id) => self.cx.globals[id.0 as usize].space,
            Base::Var(id) => self.var_space(id),
            Base::Param(_) | Base::Ret(_) => Space::Param,
            _ => return Err(form.operands_error("a function is not memory")),
        };
        if space != Space::Generic && space != home {
            let (name, home, space) = (excerpt(name), home.name(), space.name());
            return Err(
                form.operands_error(format!("'{name}' lies in '.{home}', not in '.{space}'"))
            );
        }
        Ok((home, Address { base, offset: *offset }))
    }
}

/// Instructions that only move bits look at widths alone.
impl<'s> Lower<'_, 's> {
    pub(super) fn src_moved(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
    ) -> Result<Operand, ErrorKind> {
        self.src_fit(form, operand, ty, Fit::SameWidth)
    }

    pub(super) fn dst_moved(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        ty: Type,
    ) -> Result<Reg, ErrorKind> {
        self.dst_fit(form, operand, ty, Fit::SameWidth)
    }

    /// The elements of a vector operand `{a, b}` or of a vector register; a lone operand is one
    /// element.
    pub(super) fn elements<'o>(
        &mut self,
        form: &Form<'_, 's>,
        operand: &'o ast::Operand<'s>,
        count: usize,
    ) -> Result<Vec<Element<'o, 's>>, ErrorKind> {
        let elements: Vec<Element<'o, 's>> = match operand {
            ast::Operand::Vector(list) => list.iter().map(Element::Operand).collect(),
            ast::Operand::Name { name, suffix: None, addend: 0 }
                if count > 1 && special(name, None).is_none() =>
            {
                match self.look_up(name)? {
                    Name::VectorReg(regs) => regs.iter().map(|&reg| Element::Reg(reg)).collect(),
                    _ => vec![Element::Operand(operand)],
                }
            }
            _ => vec![Element::Operand(operand)],
        };
        if elements.len() == count {
            return Ok(elements);
        }
        Err(form
            .operands_error(format!("{count} vector elements expected, found {}", elements.len())))
    }

    pub(super) fn element_src(
        &mut self,
        form: &Form<'_, 's>,
        element: &Element<'_, 's>,
        ty: Type,
        fit: Fit,
    ) -> Result<Operand, ErrorKind> {
        match element {
            Element::Operand(operand) => self.src_fit(form, operand, ty, fit),
            Element::Reg(reg) => self.checked(form, *reg, ty, fit).map(Operand::Reg),
        }
    }

    pub(super) fn element_dst(
        &mut self,
        form: &Form<'_, 's>,
        element: &Element<'_, 's>,
        ty: Type,
        fit: Fit,
    ) -> Result<Option<Reg>, ErrorKind> {
        match element {
            Element::Operand(operand) => self.dst_or_sink(form, operand, ty, fit),
            Element::Reg(reg) => self.checked(form, *reg, ty, fit).map(Some),
        }
    }
}

/// One element of a vector operand.
pub(super) enum Element<'o, 's> {
    Operand(&'o ast::Operand<'s>),
    Reg(Reg),
}
