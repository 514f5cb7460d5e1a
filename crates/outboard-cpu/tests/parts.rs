//! The table by which the driver library is told what of a mapping is allocated, as a worker finds
//! and uses it.

use core::ffi::{c_int, c_void};
use core::ptr::null;

use outboard_abi::{
    CUcontext, CUipcMemHandle, CUmemAccess_flags_enum, CUmemAccessDesc, CUmemAllocationProp,
    CUmemAllocationType_enum, CUmemLocation, CUmemLocationType_enum, CUresult,
};
// For its exported functions.
use outboard_cpu as _;

unsafe extern "C" {
    fn cuInit(flags: u32) -> CUresult;
    fn cuDevicePrimaryCtxRetain(out: *mut CUcontext, device: c_int) -> CUresult;
    fn cuCtxSetCurrent(context: CUcontext) -> CUresult;
    fn cuGetExportTable(out: *mut *const c_void, id: *const [u8; 16]) -> CUresult;
    fn cuMemAddressReserve(
        out: *mut u64,
        bytes: usize,
        align: usize,
        hint: u64,
        flags: u64,
    ) -> CUresult;
    fn cuMemCreate(
        out: *mut u64,
        bytes: usize,
        prop: *const CUmemAllocationProp,
        flags: u64,
    ) -> CUresult;
    fn cuMemMap(address: u64, bytes: usize, offset: usize, handle: u64, flags: u64) -> CUresult;
    fn cuMemUnmap(address: u64, bytes: usize) -> CUresult;
    fn cuMemRelease(handle: u64) -> CUresult;
    fn cuMemSetAccess(
        address: u64,
        bytes: usize,
        desc: *const CUmemAccessDesc,
        count: usize,
    ) -> CUresult;
    fn cuMemsetD8_v2(address: u64, value: u8, bytes: usize) -> CUresult;
    fn cuIpcGetMemHandle(out: *mut CUipcMemHandle, address: u64) -> CUresult;
}

const OK: CUresult = CUresult::CUDA_SUCCESS;
const INVALID: CUresult = CUresult::CUDA_ERROR_INVALID_VALUE;
const BLOCK: usize = 2 << 20;

/// A mapping of a new block that the device may use.
///
/// # Safety
/// A context is current.
unsafe fn mapping() -> u64 {
    let location =
        CUmemLocation { type_: CUmemLocationType_enum::CU_MEM_LOCATION_TYPE_DEVICE, id: 0 };
    // SAFETY: a structure of numbers and a pointer that is not followed.
    let mut prop: CUmemAllocationProp = unsafe { core::mem::zeroed() };
    (prop.type_, prop.location) =
        (CUmemAllocationType_enum::CU_MEM_ALLOCATION_TYPE_PINNED, location);
    let access = CUmemAccessDesc {
        location,
        flags: CUmemAccess_flags_enum::CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    let (mut address, mut memory) = (0, 0);
    // SAFETY: the arguments are as cuda.h says.
    unsafe {
        assert_eq!(cuMemAddressReserve(&raw mut address, BLOCK, 0, 0, 0), OK);
        assert_eq!(cuMemCreate(&raw mut memory, BLOCK, &raw const prop, 0), OK);
        assert_eq!(cuMemMap(address, BLOCK, 0, memory, 0), OK);
        assert_eq!(
            (cuMemSetAccess(address, BLOCK, &raw const access, 1), cuMemRelease(memory)),
            (OK, OK)
        );
    }
    address
}

#[test]
fn the_table_divides_a_mapping_and_lets_its_parts_be_shared() {
    let (mut context, mut table) = (core::ptr::null_mut(), null::<c_void>());
    let mut handle = CUipcMemHandle { reserved: [0; 64] };
    // SAFETY: the arguments are as cuda.h says, the table as its maker.
    unsafe {
        assert_eq!((cuInit(0), cuDevicePrimaryCtxRetain(&raw mut context, 0)), (OK, OK));
        assert_eq!(cuCtxSetCurrent(context), OK);
        let at = mapping();
        assert_eq!(
            cuIpcGetMemHandle(&raw mut handle, at),
            INVALID,
            "a program may not, as natively"
        );

        assert_eq!(cuGetExportTable(&raw mut table, b"outboard-parts-1"), OK);
        let slots = std::slice::from_raw_parts(table.cast::<usize>(), 2);
        assert_eq!(slots[0], 16);
        let change: extern "C" fn(u64, u64, u32) -> CUresult = std::mem::transmute(slots[1]);
        assert_eq!(
            cuIpcGetMemHandle(&raw mut handle, at),
            OK,
            "all of a mapping that is not divided"
        );
        assert_eq!(
            (change(at, 512, 1), change(at, BLOCK as u64, 3), change(at, BLOCK as u64, 2)),
            (INVALID, INVALID, OK)
        );
        assert_eq!(cuMemsetD8_v2(at, 1, 1), INVALID);
        assert_eq!((change(at + 512, 1000, 1), cuMemsetD8_v2(at + 512, 1, 1000)), (OK, OK));
        assert_eq!(
            (cuMemsetD8_v2(at + 512, 1, 1001), cuMemsetD8_v2(at + 511, 1, 1)),
            (INVALID, INVALID)
        );
        let shared =
            [at, at + 512, at + 768].map(|address| cuIpcGetMemHandle(&raw mut handle, address));
        assert_eq!(shared, [INVALID, OK, INVALID]);
        assert_eq!((change(at + 512, 1000, 0), cuMemsetD8_v2(at + 512, 1, 1)), (OK, INVALID));
        assert_eq!((cuMemUnmap(at, BLOCK), change(at, 512, 1)), (OK, INVALID));
    }
}
