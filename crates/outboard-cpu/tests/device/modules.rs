//! Images: what loads, what is refused and why.

use outboard_abi::{CUfunction_attribute, CUlaunchAttributeID_enum, CUresult};
use outboard_front::backend::{Backend, DevicePtr, ObjectId, StreamId};

use crate::fixture::{Context, KERNELS, fresh};

/// PTX with a body for one kernel `k`.
fn ptx(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{ {body} ret; }}\n"
    )
}

#[test]
fn kernels_and_their_attributes() {
    let ctx = Context::new();
    let module = ctx.load(KERNELS).unwrap();
    let names = ctx.cpu.module_functions(ctx.id, module).unwrap();
    assert_eq!(names, ["add", "step", "wait", "poke", "stop"]);
    let add = ctx.function(module, "add");
    assert_eq!(add.info.params, [(0, 8), (8, 8)]);
    let (threads, shared, architecture, binary, most_shared) = (0, 1, 5, 6, 8);
    assert_eq!(add.info.attribute(threads), 1024);
    assert_eq!(add.info.attribute(shared), 0);
    assert_eq!(add.info.attribute(architecture), 80);
    assert_eq!(add.info.attribute(binary), 90);
    assert_eq!(add.info.attribute(most_shared), 48 << 10);
    let missing = ctx.cpu.module_function(ctx.id, module, "subtract", fresh());
    assert_eq!(missing.unwrap_err(), CUresult::CUDA_ERROR_NOT_FOUND);
    ctx.cpu.module_unload(ctx.id, module).unwrap();
    assert_eq!(
        ctx.launch(&add, 1, &[0, 0], StreamId::LEGACY),
        Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
    );
}

#[test]
fn globals_have_addresses_and_contents() {
    let ctx = Context::new();
    let text = ".version 8.0\n.target sm_80\n.address_size 64\n\
        .visible .global .align 4 .u32 numbers[4] = {1, 2, 3};\n.visible .const .align 4 .u32 fixed = 7;\n\
        .visible .entry k() { ret; }";
    let module = ctx.load(text).unwrap();
    let (DevicePtr(address), bytes, _) = ctx.cpu.module_global(ctx.id, module, "numbers").unwrap();
    assert_eq!(bytes, 16);
    assert_eq!(ctx.read(address, 4, StreamId::LEGACY), [1, 2, 3, 0]);
    let (DevicePtr(address), bytes, _) = ctx.cpu.module_global(ctx.id, module, "fixed").unwrap();
    assert_eq!(bytes, 4);
    ctx.write(address, &[8], StreamId::LEGACY);
    assert_eq!(ctx.read(address, 1, StreamId::LEGACY), [8]);
    let missing = ctx.cpu.module_global(ctx.id, module, "k");
    assert_eq!(missing, Err(CUresult::CUDA_ERROR_NOT_FOUND));
}

#[test]
fn an_instruction_that_is_not_there_is_named() {
    let ctx = Context::new();
    let body =
        ".reg .b32 %r<5>; .reg .b64 %rd; sust.p.1d.v4.b32.trap [%rd, {%r1}], {%r1, %r2, %r3, %r4};";
    let (error, why) = ctx.load(&ptx(body)).unwrap_err();
    assert_eq!(error, CUresult::CUDA_ERROR_INVALID_PTX);
    assert!(why.contains("sust.p.1d.v4.b32.trap") && why.contains("kernel 'k'"), "{why}");
}

#[test]
fn refusals() {
    let ctx = Context::new();
    let refusals: [(String, CUresult); 7] = [
        (ptx("frobnicate;"), CUresult::CUDA_ERROR_INVALID_PTX),
        (ptx("").replace("8.0", "99.0"), CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION),
        (ptx("").replace("sm_80", "sm_100"), CUresult::CUDA_ERROR_INVALID_PTX),
        (
            ptx("call f;").replace(".visible", ".extern .func f();\n.visible"),
            CUresult::CUDA_ERROR_INVALID_PTX,
        ),
        ("hello world".into(), CUresult::CUDA_ERROR_INVALID_IMAGE),
        (String::new(), CUresult::CUDA_ERROR_INVALID_IMAGE),
        ("\x7fELF and so on".into(), CUresult::CUDA_ERROR_INVALID_IMAGE),
    ];
    for (text, expected) in refusals {
        let (error, why) = ctx.load(&text).unwrap_err();
        assert_eq!(error, expected, "{text}: {why}");
        assert!(!why.is_empty(), "{text}");
    }
}

#[test]
fn parts_are_linked() {
    let ctx = Context::new();
    let head = ".version 8.0\n.target sm_80\n.address_size 64\n";
    let main = format!(
        "{head}.extern .func (.param .b32 r) twice(.param .b32 a);\n.visible .entry k(.param .u64 target) {{
            .reg .b32 %r<2>; .reg .b64 %rd; .param .b32 arg; .param .b32 res;
            ld.param.u64 %rd, [target];
            st.param.b32 [arg], 21;
            call (res), twice, (arg);
            ld.param.b32 %r1, [res];
            st.global.u32 [%rd], %r1;
            ret; }}"
    );
    let other = format!(
        "{head}.visible .func (.param .b32 r) twice(.param .b32 a) {{
            .reg .b32 %r<2>; ld.param.b32 %r1, [a]; add.u32 %r1, %r1, %r1; st.param.b32 [r], %r1; ret; }}"
    );
    // The linked machine code: an ELF file of CUDA's without sections.
    let mut linked = [0; 64];
    linked[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    linked[18] = 190;
    let module = ctx.load_parts(&[&linked, main.as_bytes(), other.as_bytes()]).unwrap();
    let (kernel, word) = (ctx.function(module, "k"), ctx.word());
    ctx.launch(&kernel, 1, &[word], StreamId::LEGACY).unwrap();
    assert_eq!(ctx.read(word, 1, StreamId::LEGACY), [42]);
}

#[test]
fn occupancy_follows_what_a_kernel_may_ask_for() {
    let ctx = Context::new();
    let add = ctx.kernel("add");
    let occupancy =
        |threads, shared| ctx.cpu.occupancy(ctx.id, add.id, threads, shared, 0).unwrap();
    assert_eq!(occupancy(1024, 0), 2);
    assert_eq!(occupancy(1025, 0), 0);
    assert_eq!(occupancy(64, 50_000), 0);
    let most_dynamic_shared = 8;
    ctx.cpu.function_set_attribute(ctx.id, add.id, most_dynamic_shared, 100_000).unwrap();
    assert_eq!(occupancy(64, 50_000), 4);
}

/// Blocks run one by one, so a kernel whose blocks work together would give wrong results.
#[test]
fn clusters_of_more_than_one_block_are_refused() {
    let ctx = Context::new();
    let text = ".version 8.0\n.target sm_90\n.address_size 64\n\
        .visible .entry two() .explicitcluster .reqnctapercluster 2, 1, 1 { ret; }\n.visible .entry any() { ret; }";
    let module = ctx.load(text).unwrap();
    let (two, any) = (ctx.function(module, "two"), ctx.function(module, "any"));
    let refused = Err(CUresult::CUDA_ERROR_INVALID_CLUSTER_SIZE);
    assert_eq!(ctx.launch(&two, 1, &[], StreamId::LEGACY), refused);
    let asking = |blocks: u32| {
        let mut value = [0; 64];
        for (at, word) in [1, blocks, 1].into_iter().enumerate() {
            value[at * 4..at * 4 + 4].copy_from_slice(&word.to_ne_bytes());
        }
        [(CUlaunchAttributeID_enum::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION.0, value)]
    };
    assert_eq!(ctx.launch_with(&any, 1, &[], StreamId::LEGACY, &asking(2)), refused);
    assert_eq!(ctx.launch_with(&any, 1, &[], StreamId::LEGACY, &asking(1)), Ok(()));
    // A launch cannot have other clusters than its kernel.
    assert_eq!(ctx.launch_with(&two, 1, &[], StreamId::LEGACY, &asking(1)), refused);
    // A program may fix them, too, but not anew.
    let fix = |function: ObjectId, blocks: [i32; 3]| -> Result<(), CUresult> {
        let attributes = [
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH,
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT,
            CUfunction_attribute::CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH,
        ];
        let mut each = attributes.iter().zip(blocks);
        each.try_for_each(|(attribute, blocks)| {
            ctx.cpu.function_set_attribute(ctx.id, function, attribute.0, blocks)
        })
    };
    assert_eq!(fix(two.id, [1, 1, 1]), Err(CUresult::CUDA_ERROR_NOT_PERMITTED));
    for (blocks, outcome) in
        [([1, 2, 1], refused), ([1, 1, 1], Ok(())), ([1, 0, 0], refused), ([0, 0, 0], Ok(()))]
    {
        assert_eq!(fix(any.id, blocks), Ok(()));
        assert_eq!(ctx.launch(&any, 1, &[], StreamId::LEGACY), outcome, "{blocks:?}");
    }
    assert_eq!(ctx.synchronize(), Ok(()));
}
