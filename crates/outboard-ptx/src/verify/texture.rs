//! Textures and surfaces, by objects: a 64-bit value tells which.

use super::form::Form;
use super::lower::Lower;
use super::operand::Fit;
use crate::ast;
use crate::error::ErrorKind;
use crate::ir::{Boundary, Fetch, Geometry, Op, Operand, Query, Reg};
use crate::types::Type;

type Done = Result<(), ErrorKind>;

fn geometry(form: &mut Form<'_, '_>) -> Result<Geometry, ErrorKind> {
    form.one_of(&[
        ("1d", Geometry::D1),
        ("2d", Geometry::D2),
        ("3d", Geometry::D3),
        ("a1d", Geometry::A1),
        ("a2d", Geometry::A2),
        ("cube", Geometry::Cube),
        ("acube", Geometry::ACube),
    ])
}

impl<'s> Lower<'_, 's> {
    /// `[object, {coordinates}]`: vectors are filled up to a length that a register could have.
    fn texel(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        geometry: Geometry,
    ) -> Result<(Operand, Vec<Operand>), ErrorKind> {
        let ast::Operand::Texel { object, coords } = operand else {
            return Err(form.operands_error("an operand such as [%rd1, {%f1, %f2}] is expected"));
        };
        let object = self.object(form, object)?;
        let wanted = geometry.coordinates();
        let fits = |count: usize| count == wanted || (wanted == 3 && count == 4);
        let list: Vec<&ast::Operand<'s>> = match &**coords {
            ast::Operand::Vector(list) => list.iter().collect(),
            other => vec![other],
        };
        if !fits(list.len()) {
            return Err(
                form.operands_error(format!("{wanted} coordinates expected, found {}", list.len()))
            );
        }
        let coords = list[..wanted].iter().map(|coord| self.src_moved(form, coord, Type::B32));
        Ok((object, coords.collect::<Result<_, _>>()?))
    }

    /// The register of an object.
    fn object(&mut self, form: &Form<'_, 's>, name: &'s str) -> Result<Operand, ErrorKind> {
        if self.symbol(name)?.is_some() {
            // A texture reference, which the program would set through the API.
            return Err(form.unsupported());
        }
        let plain = ast::Operand::Name { name, suffix: None, addend: 0 };
        self.src_moved(form, &plain, Type::B64)
    }

    fn texel_dsts(
        &mut self,
        form: &Form<'_, 's>,
        operand: &ast::Operand<'s>,
        count: usize,
        ty: Type,
        fit: Fit,
    ) -> Result<Vec<Option<Reg>>, ErrorKind> {
        let mut dsts = Vec::with_capacity(count);
        for element in self.elements(form, operand, count)? {
            dsts.push(self.element_dst(form, &element, ty, fit)?);
        }
        Ok(dsts)
    }
}

pub(super) fn tex<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let level = form.flag("level");
    form.flag("base");
    let geometry = geometry(form)?;
    let count = form.vector();
    let ty = form.ty_in(&[Type::F32, Type::S32, Type::U32])?;
    let coord_ty = form.ty_in(&[Type::F32, Type::S32])?;
    if count != 4 || (coord_ty == Type::S32 && matches!(geometry, Geometry::Cube | Geometry::ACube))
    {
        return Err(form.unsupported());
    }
    let fixed = 2 + usize::from(level);
    let operands = form.operands_between(fixed, fixed)?;
    let (object, coords) = cx.texel(form, &operands[1], geometry)?;
    let level = match operands.get(2) {
        // With integers for coordinates the level is one too.
        Some(_) if coord_ty == Type::S32 => return Err(form.unsupported()),
        Some(level) => Some(cx.src_moved(form, level, Type::B32)?),
        None => None,
    };
    let dsts = cx.texel_dsts(form, &operands[0], count, ty, Fit::SameWidth)?;
    cx.emit(Op::Tex { fetch: Fetch::Sample, geometry, coord_ty, ty, dsts, object, coords, level });
    Ok(())
}

pub(super) fn tld4<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let component = form.one_of(&[("r", 0), ("g", 1), ("b", 2), ("a", 3)])?;
    let geometry = geometry(form)?;
    let count = form.vector();
    let ty = form.ty_in(&[Type::F32, Type::S32, Type::U32])?;
    let coord_ty = form.ty_in(&[Type::F32])?;
    if count != 4 || !matches!(geometry, Geometry::D2 | Geometry::A2) {
        return Err(form.unsupported());
    }
    let [dst, texel] = form.operands()?;
    let (object, coords) = cx.texel(form, texel, geometry)?;
    let dsts = cx.texel_dsts(form, dst, count, ty, Fit::SameWidth)?;
    cx.emit(Op::Tex {
        fetch: Fetch::Gather(component),
        geometry,
        coord_ty,
        ty,
        dsts,
        object,
        coords,
        level: None,
    });
    Ok(())
}

/// What surface loads and stores have in common: shape, element, elements, boundary.
fn surface(form: &mut Form<'_, '_>) -> Result<(Geometry, Type, usize, Boundary), ErrorKind> {
    if !form.flag("b") {
        return Err(form.unsupported());
    }
    let geometry = geometry(form)?;
    form.cache_hints();
    let count = form.vector();
    let ty = form.ty_in(&[Type::B8, Type::B16, Type::B32, Type::B64])?;
    let boundaries =
        [("trap", Boundary::Trap), ("clamp", Boundary::Clamp), ("zero", Boundary::Zero)];
    let boundary = form.choice(&boundaries).unwrap_or(Boundary::Trap);
    let flat = !matches!(geometry, Geometry::Cube | Geometry::ACube);
    if !flat || count > 4 || count * ty.size() as usize > 16 {
        return Err(form.unsupported());
    }
    Ok((geometry, ty, count, boundary))
}

pub(super) fn suld<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let (geometry, ty, count, boundary) = surface(form)?;
    let [dst, texel] = form.operands()?;
    let (object, coords) = cx.texel(form, texel, geometry)?;
    let dsts = cx.texel_dsts(form, dst, count, ty, Fit::Wider)?;
    cx.emit(Op::SurfaceLoad { geometry, ty, boundary, dsts, object, coords });
    Ok(())
}

pub(super) fn sust<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let (geometry, ty, count, boundary) = surface(form)?;
    let [texel, src] = form.operands()?;
    let (object, coords) = cx.texel(form, texel, geometry)?;
    let mut srcs = Vec::with_capacity(count);
    for element in cx.elements(form, src, count)? {
        srcs.push(cx.element_src(form, &element, ty, Fit::Wider)?);
    }
    cx.emit(Op::SurfaceStore { geometry, ty, boundary, srcs, object, coords });
    Ok(())
}

pub(super) fn query<'s>(cx: &mut Lower<'_, 's>, form: &mut Form<'_, 's>) -> Done {
    let surface = form.inst.opcode == "suq";
    let query = form.one_of(&[
        ("width", Query::Width),
        ("height", Query::Height),
        ("depth", Query::Depth),
        ("array_size", Query::ArraySize),
        ("num_mipmap_levels", Query::Levels),
    ])?;
    form.ty_in(&[Type::B32])?;
    let [dst, object] = form.operands()?;
    let ast::Operand::Address { base: Some(name), offset: 0 } = object else {
        return Err(form.operands_error("an operand such as [%rd1] is expected"));
    };
    let object = cx.object(form, name)?;
    let dst = cx.dst_moved(form, dst, Type::B32)?;
    cx.emit(Op::TextureQuery { query, surface, dst, object });
    Ok(())
}
