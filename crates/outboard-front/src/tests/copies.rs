//! Copies between all kinds of memory: what is refused, and how often the map of allocations is
//! asked.

use core::ffi::c_void;

use outboard_abi::{
    CUDA_ARRAY3D_DESCRIPTOR, CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUarray, CUarray_format,
    CUmemorytype as Type, CUresult, CUstreamCaptureMode,
};
use proptest::prelude::*;

use super::program::{Program, nothing};
use super::*;
use crate::addresses::LOOK_UPS;
use crate::backend::{DevicePtr, Result, ServerId, UnifiedPtr};
use crate::memory::{self, Kind};
use crate::process::Front;

const LEGACY: DefaultStream = DefaultStream::Legacy;
const INVALID: Result<()> = Err(CUresult::CUDA_ERROR_INVALID_VALUE);
/// Bytes that each copy may use of a side.
const ROOM: usize = 256;

fn array(program: Program, width: usize) -> CUarray {
    let wanted = CUDA_ARRAY3D_DESCRIPTOR {
        Width: width,
        Height: 0,
        Depth: 0,
        Format: CUarray_format::CU_AD_FORMAT_UNSIGNED_INT8,
        NumChannels: 1,
        Flags: 0,
    };
    ask!(program, cuArray3DCreate_v2, &raw const wanted).expect("a context is current")
}

/// Four rows of 16 bytes.
fn rows(dst: u64, src: u64) -> CUDA_MEMCPY2D {
    CUDA_MEMCPY2D {
        dstMemoryType: Type::CU_MEMORYTYPE_UNIFIED,
        dstDevice: dst,
        dstPitch: 32,
        srcMemoryType: Type::CU_MEMORYTYPE_UNIFIED,
        srcDevice: src,
        srcPitch: 16,
        WidthInBytes: 16,
        Height: 4,
        ..nothing()
    }
}

/// Two slices of as many.
fn slices(dst: u64, src: u64) -> CUDA_MEMCPY3D {
    CUDA_MEMCPY3D {
        dstMemoryType: Type::CU_MEMORYTYPE_UNIFIED,
        dstDevice: dst,
        dstPitch: 32,
        dstHeight: 4,
        srcMemoryType: Type::CU_MEMORYTYPE_UNIFIED,
        srcDevice: src,
        srcPitch: 16,
        srcHeight: 5,
        WidthInBytes: 16,
        Height: 4,
        Depth: 2,
        ..nothing()
    }
}

/// Makes a piece of memory be two mappings next to each other.
fn map(front: &'static Front, base: u64, first: u64, second: (u64, bool)) {
    for (base, bytes, accessible) in [(base, first, true), (base + first, second.0, second.1)] {
        memory::insert_mapped(front, (0, ServerId::default()), DevicePtr(base), bytes, 1);
        memory::set_accessible(front, DevicePtr(base), accessible);
    }
}

#[test]
fn a_row_of_an_array_is_copied_only_from_memory_that_is_there() {
    let program = Program::current();
    let (memory, array) = (program.memory(64), array(program, 128));
    let copy = |bytes| call!(program, cuMemcpyDtoA_v2, array, 0, memory, bytes, LEGACY);
    assert_eq!(program.methods_of(|| assert_eq!(copy(65), INVALID)), [""; 0]);
    assert_eq!(program.methods_of(|| assert_eq!(copy(64), Ok(()))), ["copy_box"]);
}

#[test]
fn each_side_of_a_copy_is_looked_up_once() {
    let program = Program::current();
    let stream = program.stream();
    let (device, other) = (program.memory(ROOM), program.memory(ROOM));
    let managed = ask!(program, cuMemAllocManaged, ROOM, 1).expect("a context is current");
    let synchronous = program.memory(ROOM);
    assert!(memory::set_synchronous(program.process, UnifiedPtr(synchronous), true));
    let pinned: *mut c_void = ask!(program, cuMemHostAlloc, ROOM, 0).expect("a context is current");
    let (mut bytes, more) = ([0_u8; ROOM], [0_u8; ROOM]);
    let pageable = bytes.as_mut_ptr().cast::<c_void>();
    let array = array(program, 128);
    let mapped = 1 << 40;
    map(program.process, mapped, 16, (ROOM as u64, true));

    let look_ups = |what: &str, expected: usize, copy: &dyn Fn() -> Result<()>| {
        LOOK_UPS.set(0);
        assert_eq!(copy(), Ok(()), "{what}");
        assert_eq!(LOOK_UPS.get(), expected, "{what}");
    };
    let mut kinds = vec![("device", device), ("managed", managed), ("synchronous", synchronous)];
    kinds.extend([("pageable", pageable as u64), ("pinned", pinned as u64)]);
    for (name, memory) in kinds {
        let host = memory as *mut c_void;
        look_ups(&format!("from {name}"), 2, &|| {
            call!(program, cuMemcpyHtoD_v2, device, host, 64, LEGACY)
        });
        look_ups(&format!("to {name}"), 2, &|| {
            call!(program, cuMemcpyDtoH_v2, host, device, 64, LEGACY)
        });
        look_ups(&format!("from {name}, later"), 2, &|| {
            call!(program, cuMemcpyHtoDAsync_v2, device, host, 64, stream)
        });
        look_ups(&format!("to {name}, later"), 2, &|| {
            call!(program, cuMemcpyDtoHAsync_v2, host, device, 64, stream)
        });
        let (to, from) = (rows(device, memory), rows(memory, device));
        look_ups(&format!("rows from {name}"), 2, &|| {
            call!(program, cuMemcpy2D_v2, &raw const to, LEGACY)
        });
        look_ups(&format!("rows to {name}, later"), 2, &|| {
            call!(program, cuMemcpy2DAsync_v2, &raw const from, stream)
        });
        let (to, from) = (slices(device, memory), slices(memory, device));
        look_ups(&format!("slices from {name}, later"), 2, &|| {
            call!(program, cuMemcpy3DAsync_v2, &raw const to, stream)
        });
        look_ups(&format!("slices to {name}"), 2, &|| {
            call!(program, cuMemcpy3D_v2, &raw const from, LEGACY)
        });
    }
    look_ups("to an array", 1, &|| call!(program, cuMemcpyDtoA_v2, array, 0, device, 64, LEGACY));
    look_ups("on the device", 2, &|| call!(program, cuMemcpyDtoD_v2, device, other, 64, LEGACY));
    let on_host = rows(pageable as u64, more.as_ptr() as u64);
    look_ups("on the host", 2, &|| call!(program, cuMemcpy2D_v2, &raw const on_host, LEGACY));
    look_ups("within the first mapping", 2, &|| {
        call!(program, cuMemcpyDtoD_v2, device, mapped, 16, LEGACY)
    });
    look_ups("into the next mapping", 3, &|| {
        call!(program, cuMemcpyDtoD_v2, device, mapped, 17, LEGACY)
    });

    let mode = CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_RELAXED;
    call!(program, cuStreamBeginCapture_v2, stream, mode).expect("it does not capture yet");
    look_ups("captured", 2, &|| call!(program, cuMemcpyHtoDAsync_v2, device, pinned, 64, stream));
    look_ups("captured on the device", 2, &|| {
        call!(program, cuMemcpyDtoDAsync_v2, device, managed, 64, stream)
    });
}

#[test]
fn a_copy_of_any_shape_is_refused_if_a_side_is_not_there() {
    let program = Program::current();
    let good = program.memory(ROOM);
    let (unknown, short, closed) = (1 << 40, program.memory(15), 3 << 40);
    map(program.process, closed, 8, (ROOM as u64, false));
    let error = INVALID;
    for bad in [0, unknown, short, closed] {
        for (dst, src) in [(good, bad), (bad, good), (bad, bad)] {
            let asked = program.methods_of(|| {
                assert_eq!(call!(program, cuMemcpyDtoD_v2, dst, src, 16, LEGACY), error);
                let mut c = rows(dst, src);
                (c.dstMemoryType, c.srcMemoryType) =
                    (Type::CU_MEMORYTYPE_DEVICE, Type::CU_MEMORYTYPE_DEVICE);
                assert_eq!(call!(program, cuMemcpy2D_v2, &raw const c, LEGACY), error);
                let mut c = slices(dst, src);
                (c.dstMemoryType, c.srcMemoryType) =
                    (Type::CU_MEMORYTYPE_DEVICE, Type::CU_MEMORYTYPE_DEVICE);
                assert_eq!(call!(program, cuMemcpy3D_v2, &raw const c, LEGACY), error);
            });
            assert!(asked.is_empty(), "{dst:#x} from {src:#x}: {asked:?}");
        }
    }
}

proptest! {
    /// A range is checked as if each of its bytes were looked up.
    #[test]
    fn a_range_is_checked_as_its_bytes_are(
        pieces in prop::collection::vec((prop_oneof![4 => Just(0u64), 1 => 1u64..3], 1u64..6, 0..5), 1..8),
        (from, bytes) in (0u64..30, 1u64..20),
    ) {
        let program = Program::current();
        let here = crate::context::current(program.process).expect("a context is current");
        // By byte: which piece it is of, if any, and whether that is a mapping that may be used, or
        // one that may not.
        let (base, mut model) = (1_u64 << 40, Vec::new());
        for (index, (gap, len, kind)) in pieces.into_iter().enumerate() {
            model.extend((0..gap).map(|_| None));
            let at = base + model.len() as u64;
            let mapped = match kind {
                0 => { memory::insert(program.process, &here, UnifiedPtr(at), len, Kind::Device); None }
                _ => {
                    memory::insert_mapped(program.process, (0, ServerId::default()), DevicePtr(at), len, 1);
                    memory::set_accessible(program.process, DevicePtr(at), kind != 1);
                    Some(kind != 1)
                }
            };
            model.extend((0..len).map(|_| Some((index, mapped))));
        }
        let range: Vec<_> = (from..from + bytes).map(|at| model.get(at as usize).copied().flatten()).collect();
        let one = range[0].is_some_and(|(_, mapped)| mapped.is_none()) && range.iter().all(|byte| *byte == range[0]);
        let mappings = range.iter().all(|byte| matches!(byte, Some((_, Some(true)))));
        let checked = memory::check_device(program.process, DevicePtr(base + from), bytes);
        prop_assert_eq!(checked.is_ok(), one || mappings);
    }
}
