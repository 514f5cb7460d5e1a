//! What the parser makes of whole modules.

use outboard_ptx::ir::{
    Address, Base, BlockId, CallArg, Callee, Function, Guard, IntBinOp, Linkage, Module, Op,
    Operand, Reg, Reloc, SpecialReg, Symbol,
};
use outboard_ptx::{ErrorKind, Space, Type, parse};

const HEAD: &str = ".version 9.0\n.target sm_75\n.address_size 64\n";

fn module(text: &str) -> Module {
    parse(&format!("{HEAD}{text}")).unwrap_or_else(|error| panic!("{error}"))
}

fn error(text: &str) -> String {
    parse(&format!("{HEAD}{text}")).map(|_| ()).expect_err(text).to_string()
}

fn function<'m>(module: &'m Module, name: &str) -> &'m Function {
    module.functions.iter().find(|function| function.name == name).expect(name)
}

/// All operations of a function in order.
fn ops(module: &Module, name: &str) -> Vec<Op> {
    let body = function(module, name).body.as_ref().expect(name);
    body.blocks.iter().flat_map(|block| &block.insts).map(|inst| inst.op.clone()).collect()
}

#[test]
fn a_module_as_the_compiler_writes_it() {
    let module = parse(include_str!("data/compiled.ptx")).unwrap();
    assert_eq!((module.version, module.target_sm), ((9, 0), 90));
    let kernel = function(&module, "scale");
    let params: Vec<_> = kernel.sig.params.iter().map(|param| (param.offset, param.size)).collect();
    assert_eq!(params, [(0, 8), (8, 4), (16, 24)]);
    assert_eq!(kernel.sig.params_size, 40);
    let entry = kernel.entry.as_ref().unwrap();
    assert_eq!((entry.max_ntid, entry.min_ncta_per_sm), (Some([256, 1, 1]), Some(2)));
    assert_eq!(entry.static_shared, 1024);
    assert!(function(&module, "vprintf").body.is_none());
    assert_eq!(function(&module, "vprintf").linkage, Linkage::Extern);
}

#[test]
fn blocks_end_at_branches_and_begin_at_labels() {
    let module = module(
        ".entry loop(.param .u32 n) {
            .reg .pred %p<2>; .reg .b32 %r<4>;
            ld.param.u32 %r1, [n];
            mov.u32 %r2, 0;
         again:
            add.s32 %r2, %r2, 1;
            setp.lt.s32 %p1, %r2, %r1;
            @%p1 bra again;
            @!%p1 bra done;
            trap;
         done:
            ret;
        }",
    );
    let body = function(&module, "loop").body.as_ref().unwrap();
    let lengths: Vec<usize> = body.blocks.iter().map(|block| block.insts.len()).collect();
    assert_eq!(lengths, [2, 3, 1, 1, 1]);
    let back = &body.blocks[1].insts[2];
    assert_eq!(back.op, Op::Bra { target: BlockId(1) });
    assert_eq!(back.line, 11);
    let forth = &body.blocks[2].insts[0];
    assert_eq!(forth.op, Op::Bra { target: BlockId(4) });
    let Some(Guard { reg, negated: true }) = forth.guard else { panic!("{:?}", forth.guard) };
    assert_eq!(body.regs[reg.0 as usize], Type::Pred);
}

#[test]
fn a_label_at_the_very_end_is_an_empty_block() {
    let module = module(".entry e() { .reg .pred %p<2>; @%p1 bra end; trap; end: }");
    let body = function(&module, "e").body.as_ref().unwrap();
    assert_eq!(body.blocks.len(), 3);
    assert_eq!(body.blocks[0].insts[0].op, Op::Bra { target: BlockId(2) });
    assert!(body.blocks[2].insts.is_empty());
}

#[test]
fn branch_tables_resolve_their_labels() {
    let module = module(
        ".entry s() { .reg .b32 %r<2>;
            table: .branchtargets one, two, one;
            brx.idx %r1, table;
            one: exit;
            two: ret; }",
    );
    let ops = ops(&module, "s");
    let Op::BrxIdx { targets, .. } = &ops[0] else { panic!("{ops:?}") };
    assert_eq!(targets, &[BlockId(1), BlockId(2), BlockId(1)]);
}

#[test]
fn scopes_hide_outer_names() {
    let module = module(
        ".entry s() { .reg .b32 %r<3>, x;
            mov.b32 x, 1;
            { .reg .b64 x; mov.b64 x, 2; }
            mov.b32 x, 3;
            { .reg .b32 %r<2>; mov.b32 %r1, 4; mov.b32 %r2, 5; } }",
    );
    let regs: Vec<_> = ops(&module, "s")
        .into_iter()
        .map(|op| match op {
            Op::Mov { ty, dst, a: Operand::Imm(value) } => (ty, dst, value),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(regs[0], (Type::B32, regs[2].1, 1));
    assert_eq!(regs[1].0, Type::B64);
    assert_ne!(regs[0].1, regs[1].1);
    // The inner range has %r0 and %r1 only.
    let body = function(&module, "s").body.as_ref().unwrap();
    assert_eq!(body.regs.len(), 4);
}

#[test]
fn immediates_take_the_width_of_their_instruction() {
    let module = module(
        ".entry i() { .reg .b16 %h; .reg .b32 %r; .reg .b64 %d; .reg .f32 %f; .reg .f64 %e; .reg .pred %p;
            mov.b16 %h, -1; mov.u32 %r, -2; mov.u64 %d, -3; mov.f32 %f, 1.5; mov.f64 %e, 0d4000000000000000;
            mov.f32 %f, 0f3F800000; mov.u32 %r, WARP_SZ; mov.u32 %r, (3 + 4) * 2; mov.u32 %r, 1 << 4 | 3;
            mov.f32 %f, -2.0; mov.pred %p, 1; mov.b32 %r, 0f40000000; }",
    );
    let values: Vec<u64> = ops(&module, "i")
        .into_iter()
        .map(|op| match op {
            Op::Mov { a: Operand::Imm(value), .. } => value,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(
        values,
        [
            0xffff,
            0xffff_fffe,
            u64::MAX - 2,
            0x3fc0_0000,
            0x4000_0000_0000_0000,
            0x3f80_0000,
            32,
            14,
            19,
            0xc000_0000,
            1,
            0x4000_0000
        ]
    );
}

#[test]
fn special_registers_and_symbols_become_operations_of_their_own() {
    let module = module(
        ".shared .align 8 .b8 buffer[64];
         .entry s() { .reg .b32 %r<3>; .reg .b64 %d<3>;
            mad.lo.u32 %r1, %ctaid.x, 3, %r2;
            mov.u64 %d1, buffer+8;
            cvt.u64.u32 %d2, %tid.y; }",
    );
    let ops = ops(&module, "s");
    assert!(matches!(
        ops[0],
        Op::MovSpecial { sreg: SpecialReg::Ctaid(outboard_ptx::ir::Dim::X), .. }
    ));
    assert!(matches!(ops[1], Op::Mad { a: Operand::Reg(_), b: Operand::Imm(3), .. }));
    let Op::MovAddr { addr: Address { base: Base::Global(id), offset: 8 }, .. } = ops[2] else {
        panic!("{ops:?}")
    };
    assert_eq!(module.globals[id.0 as usize].name, "buffer");
    assert!(matches!(
        ops[4],
        Op::MovSpecial { sreg: SpecialReg::Tid(outboard_ptx::ir::Dim::Y), .. }
    ));
}

#[test]
fn a_space_that_is_not_named_comes_from_the_variable() {
    let module = module(
        ".const .u32 c = 7; .global .u32 g;
         .entry s(.param .u32 n) { .reg .b32 %r; .reg .b64 %d; .local .u32 l;
            ld.u32 %r, [c]; st.u32 [g], %r; ld.u32 %r, [l]; ld.param.u32 %r, [n]; ld.u32 %r, [%d]; }",
    );
    let spaces: Vec<Space> = ops(&module, "s")
        .iter()
        .map(|op| match op {
            Op::Ld { space, .. } | Op::St { space, .. } => *space,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(spaces, [Space::Const, Space::Global, Space::Local, Space::Param, Space::Generic]);
}

#[test]
fn parameters_in_registers_are_loaded_and_stored() {
    let module = module(
        ".func (.reg .u32 result) twice(.reg .u32 x) { add.u32 result, x, x; ret; }
         .entry k() { .reg .u32 a; call (a), twice, (21); call (_), twice, (a); }",
    );
    let twice = ops(&module, "twice");
    assert!(matches!(
        twice[0],
        Op::Ld { space: Space::Param, addr: Address { base: Base::Param(0), .. }, .. }
    ));
    assert!(matches!(twice[1], Op::IntBin { op: IntBinOp::Add, .. }));
    assert!(matches!(
        twice[2],
        Op::St { space: Space::Param, addr: Address { base: Base::Ret(0), .. }, .. }
    ));
    assert_eq!(twice[3], Op::Ret);
    let calls = ops(&module, "k");
    let Op::Call { callee: Callee::Direct(_), rets, args } = &calls[0] else { panic!("{calls:?}") };
    assert_eq!(
        (rets.as_slice(), args.as_slice()),
        (&[CallArg::Reg(Reg(0))][..], &[CallArg::Imm(21)][..])
    );
    let Op::Call { rets, args, .. } = &calls[1] else { panic!("{calls:?}") };
    assert_eq!(
        (rets.as_slice(), args.as_slice()),
        (&[CallArg::Unused][..], &[CallArg::Reg(Reg(0))][..])
    );
}

#[test]
fn calls_through_pointers_carry_their_layout() {
    let module = module(
        ".entry k() { .reg .b64 %d; .reg .b32 %r;
            { .param .b64 a; .param .align 4 .b8 b[12]; .param .b32 out;
              shape: .callprototype (.param .b32 _) _ (.param .b64 _, .param .align 4 .b8 _[12]);
              call (out), %d, (a, b), shape;
              ld.param.b32 %r, [out]; } }",
    );
    let ops = ops(&module, "k");
    let Op::Call { callee: Callee::Indirect { sig, .. }, args, .. } = &ops[0] else {
        panic!("{ops:?}")
    };
    assert_eq!((sig.params_size, sig.rets_size), (20, 4));
    assert_eq!(args.len(), 2);
    let body = function(&module, "k").body.as_ref().unwrap();
    let frame: Vec<_> = body.vars.iter().map(|var| (var.space, var.offset, var.size)).collect();
    assert_eq!(frame, [(Space::Param, 0, 8), (Space::Param, 8, 12), (Space::Param, 20, 4)]);
    assert_eq!((body.frame_size, body.frame_align), (24, 8));
}

#[test]
fn initial_contents_are_laid_out() {
    let module = module(
        ".func f() { ret; }
         .global .align 4 .u16 a[5] = {1, -2, 3};
         .global .u8 grid[2][4] = {{1, 2}, {3}};
         .global .u8 flat[2][2] = {1, 2, 3, 4};
         .const .f32 pi = 3.25;
         .global .f64 e[] = {0d3FF0000000000000, 2.0};
         .global .u64 table[3] = {generic(a)+4, f, 0};
         .global .b8 cut[2] = {0xff(a), 0xff00(a)};
         .global .v2 .u32 pair[2] = {{1, 2}, {3, 4}};",
    );
    let init = |name: &str| {
        let global = module.globals.iter().find(|global| global.name == name).unwrap();
        (global.size, global.init.clone(), global.relocs.clone())
    };
    assert_eq!(init("a").1, [1, 0, 0xfe, 0xff, 3, 0]);
    assert_eq!((init("grid").0, init("grid").1), (8, vec![1, 2, 0, 0, 3]));
    assert_eq!(init("flat").1, [1, 2, 3, 4]);
    assert_eq!(init("pi").1, 3.25f32.to_le_bytes());
    assert_eq!((init("e").0, init("e").1), (16, [1f64.to_le_bytes(), 2f64.to_le_bytes()].concat()));
    let table = init("table");
    assert_eq!(table.1, [0; 24]);
    let Symbol::Global(a) = table.2[0].target else { panic!("{table:?}") };
    let reloc = |offset, bytes, shift, target, addend, generic| Reloc {
        offset,
        bytes,
        shift,
        target,
        addend,
        generic,
    };
    let expected =
        [reloc(0, 8, 0, Symbol::Global(a), 4, true), reloc(8, 8, 0, table.2[1].target, 0, false)];
    assert_eq!(table.2, expected);
    assert!(matches!(table.2[1].target, Symbol::Func(_)));
    let cut =
        [reloc(0, 1, 0, Symbol::Global(a), 0, false), reloc(1, 1, 8, Symbol::Global(a), 0, false)];
    assert_eq!(init("cut").2, cut);
    assert_eq!(init("pair").1, [1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0]);
}

#[test]
fn shared_variables_of_different_kernels_overlap() {
    let module = module(
        ".extern .shared .align 32 .b8 dynamic[];
         .shared .align 16 .b8 common[100];
         .func helper() { .reg .b32 %r; ld.shared.u32 %r, [common]; ret; }
         .entry one() { .shared .align 8 .b8 mine[40]; .reg .b32 %r; ld.shared.u32 %r, [mine]; call helper; }
         .entry two() { .shared .align 4 .b8 mine[400]; .reg .b32 %r; st.shared.u32 [mine], %r; call helper;
            ld.shared.u32 %r, [dynamic]; }
         .entry three() { ret; }",
    );
    let at =
        |size: u64| module.globals.iter().find(|global| global.size == size).unwrap().shared_offset;
    assert_eq!((at(100), at(40), at(400)), (0, 104, 100));
    let shared = |name: &str| function(&module, name).entry.as_ref().unwrap().static_shared;
    assert_eq!((shared("one"), shared("two"), shared("three")), (144, 512, 0));
    assert!(module.globals[0].is_dynamic_shared());
}

#[test]
fn declarations_and_definitions_are_one_function() {
    let module = module(
        ".visible .func (.param .b32 r) f(.param .b32 x);
         .entry k() { .reg .b32 %r; .param .b32 a; .param .b32 b; call (b), g, (a); }
         .visible .func (.param .b32 r) f(.param .b32 x) { ret; }
         .func (.param .b32 r) g(.param .b32 x);
         .alias g, f;",
    );
    let Op::Call { callee: Callee::Direct(id), .. } = ops(&module, "k")[0] else { panic!() };
    assert_eq!(module.functions[id.0 as usize].name, "f");
    assert!(module.functions[id.0 as usize].body.is_some());
}

#[test]
fn debugging_information_and_hints_are_passed_over() {
    let module = module(
        ".file 1 \"a.cu\", 123, 456
         .entry k() .maxntid 64, 2 .pragma \"used_bytes_mask 255\"; {
            .loc 1 3 5, function_name $L__info_string0, inlined_at 1 7 2
            .pragma \"nounroll\";
            .reg .b32 %r;;
            prefetch.global.L2 [0];
            ret;
         }
         .section .debug_str { $L__info_string0: .b8 95, 90, 0 }
         .section .debug_info\n{\n.b32 4\n.b8 { 3 }\n}\n",
    );
    assert_eq!(ops(&module, "k"), [Op::Ret]);
    assert_eq!(function(&module, "k").entry.as_ref().unwrap().max_ntid, Some([64, 2, 1]));
}

#[test]
fn vector_registers_are_their_elements() {
    let module = module(
        ".entry k() { .reg .v4 .f32 v; .reg .f32 %f; .reg .b64 %d;
            ld.global.v4.f32 v, [%d]; add.f32 %f, v.x, v.w; st.global.v2.f32 [%d], {v.y, %f}; }",
    );
    let ops = ops(&module, "k");
    let Op::Ld { dsts, .. } = &ops[0] else { panic!("{ops:?}") };
    let Op::FloatBin { a, b, .. } = &ops[1] else { panic!("{ops:?}") };
    assert_eq!(dsts.len(), 4);
    assert_eq!((Some(*a), Some(*b)), (dsts[0].map(Operand::Reg), dsts[3].map(Operand::Reg)));
}

#[test]
fn vector_atomics_do_not_overwrite_their_inputs() {
    let module = module(
        ".entry k() { .reg .f32 %f<3>; .reg .b64 %d; atom.global.add.v2.f32 {%f1, %f2}, [%d], {%f2, %f1}; }",
    );
    let ops = ops(&module, "k");
    let atoms: Vec<_> = ops
        .iter()
        .filter_map(|op| match op {
            Op::Atom { dst, b, addr, .. } => Some((dst.unwrap(), *b, addr.offset)),
            _ => None,
        })
        .collect();
    assert_eq!(atoms.len(), 2);
    assert_eq!((atoms[0].2, atoms[1].2), (0, 4));
    assert_ne!(atoms[1].1, Operand::Reg(atoms[0].0));
}

#[test]
fn errors_name_line_and_kernel() {
    let text = error(".entry blur() {\n ret;\n sured.b.add.2d.u32.trap [t, {%x, %y}], %a;\n}");
    let expected = "line 6: kernel 'blur': instruction 'sured.b.add.2d.u32.trap' is not supported by the software device";
    assert_eq!(text, expected);
    let text = error(".func f() { .reg .b32 %r<2>; add.s32 %r1, %r2, 1; }");
    assert_eq!(text, "line 4: function 'f': '%r2' is not defined");
    let text = error(".entry k() { .reg .b32 %r; .reg .b64 %d; add.s64 %d, %d, %r; }");
    assert_eq!(
        text,
        "line 4: kernel 'k': instruction 'add.s64': a register of type .b32 does not fit type .s64"
    );
}

#[test]
fn textures_and_surfaces() {
    let declared = ".reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b16 %h<4>; .reg .b64 %d<3>;";
    let one = |text: &str| module(&format!(".entry k() {{ {declared} {text} }}"));
    let program =
        one("tex.level.a2d.v4.s32.f32 {%r1, %r2, _, %r3}, [%d1, {%r4, %f1, %f2, %f2}], %f3;");
    let found = ops(&program, "k");
    let Some(Op::Tex { geometry, coord_ty, ty, dsts, coords, level, .. }) = found.first() else {
        panic!("{found:?}")
    };
    assert_eq!((*geometry, *coord_ty, *ty), (outboard_ptx::ir::Geometry::A2, Type::F32, Type::S32));
    assert_eq!(
        (dsts.len(), dsts.iter().flatten().count(), coords.len(), level.is_some()),
        (4, 3, 3, true)
    );
    for text in [
        "tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, %f5];",
        "tld4.g.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5, %f6}];",
        "suld.b.1d.b8.clamp {%h1}, [%d1, {%r1}];",
        "sust.b.2d.v2.b64.zero [%d1, {%r1, %r2}], {%d1, %d2};",
        "txq.width.b32 %r1, [%d1];",
        "suq.height.b32 %r1, [%d1];",
    ] {
        one(text);
    }
    for text in [
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%f5}];",
        "tex.2d.v4.f32.f32 {%f1, %f2}, [%d1, {%f5, %f6}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%r1, {%f5, %f6}];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1];",
        "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, {%h1, %h2}];",
        "suld.b.cube.b32.trap {%r1}, [%d1, {%r1, %r2, %r3, %r3}];",
        "suld.b.2d.v4.b64.trap {%d1, %d1, %d1, %d1}, [%d1, {%r1, %r2}];",
        "ld.global.b32 %r1, [%d1, {%r1}];",
        "tex.1d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%d1, [%d1, [%d1, [%d1, [%d1, [%d1, %f1]]]]]];",
    ] {
        error(&format!(".entry k() {{ {declared} {text} }}"));
    }
}

#[test]
fn wrong_modules_are_refused() {
    for text in [
        "nonsense",
        ".entry k() {",
        ".entry k() { ret }",
        ".entry k() { bra nowhere; }",
        ".entry k() { call k; }",
        ".entry k() { frobnicate.u32 %r; }",
        ".entry k() { .reg .u32 a; .reg .u32 a; }",
        ".entry k() { a: a: ret; }",
        ".entry k() {} .entry k() {}",
        ".entry k() { .reg .b32 %r; ld.global.u32 %r, [%r]; }",
        ".entry k() { .reg .b32 %r; mov.u32 %r, 1.5; add.u32 %r, %r; }",
        ".entry k() { .reg .pred %p; .reg .b32 %r; add.u32 %r, %p, 1; }",
        ".entry k() { .reg .b32 %r; @%r ret; }",
        ".entry k() { .reg .f32 %f; add.u32 %f, %f, %f; }",
        ".entry k() { .reg .b32 %r; add.u32.u32 %r, %r, %r; }",
        ".entry k() { .reg .b32 %r; ld.shared.u32 %r, [c]; } .const .u32 c;",
        ".entry k() { .param .b32 a; call f, (a); } .func f(.param .b64 x) { ret; }",
        ".entry k() { .param .b64 a; call f, (a, a); } .func f(.param .b64 x) { ret; }",
        ".shared .u32 s = 4;",
        ".global .u8 a[2] = {1, 2, 3};",
        ".global .u8 a[99999999999][99999999999];",
        ".global .align 3 .u8 a;",
        ".global .u64 a = nothing;",
        ".local .u32 l;",
        ".global .u32 g; .global .u32 g;",
    ] {
        error(text);
    }
}

#[test]
fn headers_are_checked() {
    let kind = |text: &str| parse(text).expect_err(text).kind;
    assert!(matches!(kind(""), ErrorKind::Syntax(_)));
    assert!(matches!(kind(".target sm_75"), ErrorKind::Syntax(_)));
    assert!(matches!(kind(".version 9.0"), ErrorKind::Syntax(_)));
    assert_eq!(kind(".version 12.1\n.target sm_75"), ErrorKind::UnsupportedVersion(12, 1));
    let narrow = kind(".version 9.0\n.target sm_75\n.address_size 32");
    assert_eq!(narrow, ErrorKind::UnsupportedFeature("'.address_size 32'".into()));
    assert_eq!(parse(".version 8.7\n.target sm_100a, debug\n\0\0").unwrap().target_sm, 100);
}

#[test]
fn deep_nesting_is_an_error_not_a_crash() {
    error(&format!(".entry k() {{ {} }}", "{".repeat(100_000)));
    error(&format!(".global .u32 a = {}1;", "(".repeat(100_000)));
    error(&format!(".global .u32 a = {}1;", "-".repeat(100_000)));
    error(&format!(".global .u32 a = {}1;", "{".repeat(100_000)));
    error(&format!(".entry k() {{ mov.b32 {} }}", "a|".repeat(100_000)));
}
