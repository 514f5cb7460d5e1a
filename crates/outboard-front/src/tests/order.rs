//! What the back end is asked, in which order, and what it is not asked because it is known.

use core::ffi::c_void;

use outboard_abi::{
    CUdevice_attribute as A, CUfunction_attribute as F, CUlimit, CUpointer_attribute, CUresult,
};

use super::program::{Program, nothing};
use super::*;

#[test]
fn a_program_from_retain_to_release() {
    let program = Program::ready();
    let first = program.asked_by(|| {
        program.make_current(0);
    });
    assert_eq!(first, ["context_open(ctx: ContextId(1), device: 0, flags: 0, primary: true)"]);

    let source = [5_u8; 64];
    let mut sink = [0_u8; 64];
    let (mut memory, mut stream, mut function, mut module) = (0, nothing(), nothing(), nothing());
    let setup = program.methods_of(|| {
        module = program.module();
        function = ask!(program, cuModuleGetFunction, module, c"kernel".as_ptr())
            .expect("the recorder has any");
        stream = program.stream();
        memory = program.memory(64);
    });
    assert_eq!(setup, ["module_load", "module_function", "stream_create", "memory_alloc"]);
    assert_eq!(memory, 0x1000, "the recorder's first address");

    let work = program.asked_by(|| {
        call!(program, cuMemcpyHtoDAsync_v2, memory, source.as_ptr().cast(), 64, stream)
            .expect("nothing fails");
        program.launch(function, stream).expect("nothing fails");
        call!(program, cuMemcpyDtoHAsync_v2, sink.as_mut_ptr().cast(), memory, 64, stream)
            .expect("nothing fails");
        call!(program, cuStreamSynchronize, stream).expect("nothing fails");
    });
    let (stream_id, function_id) = (stream as u64, function as u64);
    let created = format!("stream: StreamId({stream_id})");
    let launch = format!(
        "Launch {{ function: ObjectId({function_id}), grid: [1, 1, 1], block: [32, 1, 1], shared: 0, \
         params: [7, 0, 0, 0, 0, 0, 0, 0], cooperative: false, attributes: [] }}"
    );
    assert_eq!(
        work,
        [
            format!(
                "copy_to_device(ctx: ContextId(1), dst: DevicePtr(0x1000), src: {:?}, bytes: 64, {created}, mode: Pageable)",
                source.as_ptr()
            ),
            format!("launch(ctx: ContextId(1), launch: {launch}, {created})"),
            format!(
                "copy_to_host(ctx: ContextId(1), dst: {:?}, src: DevicePtr(0x1000), bytes: 64, {created}, mode: Pageable)",
                sink.as_ptr()
            ),
            format!("stream_synchronize(ctx: ContextId(1), {created})"),
        ]
    );

    let end = program.asked_by(|| {
        call!(program, cuMemFree_v2, memory).expect("nothing fails");
        call!(program, cuStreamDestroy_v2, stream).expect("nothing fails");
        call!(program, cuModuleUnload, module).expect("nothing fails");
        call!(program, cuDevicePrimaryCtxRelease_v2, 0).expect("nothing fails");
    });
    assert_eq!(
        end,
        [
            "memory_free(ctx: ContextId(1), address: DevicePtr(0x1000))".to_owned(),
            format!("stream_destroy(ctx: ContextId(1), stream: ObjectId({stream_id}))"),
            format!("module_unload(ctx: ContextId(1), module: ObjectId({}))", module as u64),
            "context_close(ctx: ContextId(1))".to_owned(),
        ]
    );
    assert!(
        program.process.counts().iter().all(|(part, count)| *part == "contexts" || *count == 0)
    );
}

#[test]
fn the_second_device_is_named_by_its_ordinal() {
    let program = Program::ready();
    let asked = program.asked_by(|| {
        program.make_current(1);
        program.make_current(1);
        call!(program, cuDevicePrimaryCtxRelease_v2, 1).expect("it was retained twice");
        assert_eq!(ask!(program, cuCtxGetDevice), Ok(1));
    });
    assert_eq!(asked, ["context_open(ctx: ContextId(1), device: 1, flags: 0, primary: true)"]);
    let released = program.methods_of(|| {
        call!(program, cuDevicePrimaryCtxRelease_v2, 1).expect("it was retained twice");
        let once_more = call!(program, cuDevicePrimaryCtxRelease_v2, 1);
        assert_eq!(once_more, Err(CUresult::CUDA_ERROR_INVALID_CONTEXT));
    });
    assert_eq!(released, ["context_close"]);
}

#[test]
fn what_the_platform_tells_is_not_asked() {
    let program = Program::current();
    let memory = program.memory(64);
    let function = program.function();
    let asked = program.asked_by(|| {
        assert_eq!(ask!(program, cuDriverGetVersion), Ok(13000));
        assert_eq!(ask!(program, cuDeviceGetCount), Ok(2));
        assert_eq!(ask!(program, cuDeviceTotalMem_v2, 1), Ok(80 << 30));
        let processors = A::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
        assert_eq!(ask!(program, cuDeviceGetAttribute, processors, 0), Ok(100));
        assert_eq!(ask!(program, cuDeviceGetAttribute, processors, 1), Ok(101));
        let mut greatest = 0;
        assert_eq!(ask!(program, cuCtxGetStreamPriorityRange, &raw mut greatest), Ok(0));
        assert_eq!(greatest, -5);
        let (mut flags, mut active) = (1, 0);
        call!(program, cuDevicePrimaryCtxGetState, 0, &raw mut flags, &raw mut active)
            .expect("there is one");
        assert_eq!((flags, active), (0, 1));
        assert_eq!(
            ask!(program, cuFuncGetAttribute, F::CU_FUNC_ATTRIBUTE_NUM_REGS, function),
            Ok(32)
        );
        let mut ordinal = -1;
        let of_device = CUpointer_attribute::CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL;
        let at = memory + 63;
        let into = (&raw mut ordinal).cast::<c_void>();
        call!(program, cuPointerGetAttribute, into, of_device, at).expect("it is allocated");
        assert_eq!(ordinal, 0);
        assert!(call!(program, cuPointerGetAttribute, into, of_device, memory + 64).is_err());
    });
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn what_was_answered_is_not_asked_again() {
    let program = Program::current();
    program.recorder.answer_with("context_limit", 4096_u64);
    let heap = CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE;
    let limits = program.methods_of(|| {
        assert_eq!(ask!(program, cuCtxGetLimit, heap), Ok(4096));
        assert_eq!(ask!(program, cuCtxGetLimit, heap), Ok(4096));
        call!(program, cuCtxSetLimit, heap, 8192).expect("nothing fails");
        assert_eq!(ask!(program, cuCtxGetLimit, heap), Ok(4096), "the device has the last word");
    });
    assert_eq!(limits, ["context_limit", "context_set_limit", "context_limit"]);

    let module = program.module();
    let kernel = || {
        ask!(program, cuModuleGetFunction, module, c"kernel".as_ptr())
            .expect("the recorder has any")
    };
    let functions = program.methods_of(|| assert_eq!(kernel(), kernel()));
    assert_eq!(functions, ["module_function"]);

    let function = kernel();
    let blocks =
        |threads| ask!(program, cuOccupancyMaxActiveBlocksPerMultiprocessor, function, threads, 0);
    let shared = F::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
    let occupancy = program.methods_of(|| {
        assert_eq!([blocks(32), blocks(32), blocks(64), blocks(32)], [Ok(4); 4]);
        call!(program, cuFuncSetAttribute, function, shared, 1024).expect("nothing fails");
        assert_eq!(blocks(32), Ok(4));
    });
    assert_eq!(occupancy, ["occupancy", "occupancy", "function_set_attribute", "occupancy"]);
}

#[test]
fn a_call_that_is_wrong_is_not_passed_on() {
    let program = Program::current();
    let (stream, function, memory) = (program.stream(), program.function(), program.memory(64));
    let host = [0_u8; 128];
    let none = core::ptr::null_mut();
    let asked = program.asked_by(|| {
        let invalid = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        assert_eq!(ask!(program, cuMemAlloc_v2, 0).map(drop), invalid);
        assert_eq!(call!(program, cuMemFree_v2, memory + 1), invalid);
        let too_much = call!(
            program,
            cuMemcpyHtoD_v2,
            memory,
            host.as_ptr().cast(),
            65,
            DefaultStream::Legacy
        );
        assert_eq!(too_much, invalid);
        assert_eq!(call!(program, cuMemsetD32_v2, memory, 0, 17, DefaultStream::Legacy), invalid);
        let threads = |count| {
            call!(program, cuLaunchKernel, function, 1, 1, 1, count, 1, 1, 0, stream, none, none)
        };
        assert_eq!(threads(1025), invalid);
        assert_eq!(threads(32), invalid, "the kernel has a parameter");
        assert_eq!(
            program.launch(core::ptr::null_mut(), stream),
            Err(CUresult::CUDA_ERROR_INVALID_HANDLE)
        );
        assert_eq!(ask!(program, cuStreamCreate, 2).map(drop), invalid);
        assert_eq!(ask!(program, cuEventCreate, 8).map(drop), invalid);
    });
    assert!(asked.is_empty(), "{asked:?}");
}

#[test]
fn a_small_synchronous_copy_waits_only_where_the_host_may_look() {
    let program = Program::current();
    let memory = program.memory(64);
    let mut pageable = [0_u8; 64];
    let pinned = ask!(program, cuMemHostAlloc, 64, 0).expect("the recorder allocates");
    let legacy = DefaultStream::Legacy;
    let copies = program.methods_of(|| {
        call!(program, cuMemcpyHtoD_v2, memory, pageable.as_ptr().cast(), 64, legacy)
            .expect("nothing fails");
        call!(program, cuMemcpyHtoD_v2, memory, pinned, 64, legacy).expect("nothing fails");
        call!(program, cuMemcpyDtoH_v2, pageable.as_mut_ptr().cast(), memory, 64, legacy)
            .expect("nothing fails");
    });
    assert_eq!(copies, ["copy_to_device", "copy_to_device", "stream_synchronize", "copy_to_host"]);
}
