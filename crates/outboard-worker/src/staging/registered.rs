//! Device memory that an RDMA adapter is to know (GPUDirect RDMA).
//!
//! An allocation is registered on a helper thread at its first large copy, which does not wait for
//! that. The registration ends with the allocation. A copy that is under way keeps it a moment
//! longer: the driver, or the system's pages, stay for as long as an adapter knows them.

use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use outboard_abi::{
    CUGPUDirectRDMAWritesOrdering, CUdevice_attribute as A, CUflushGPUDirectRDMAWritesScope,
    CUflushGPUDirectRDMAWritesTarget, CUmemRangeHandleType, CUresult,
};
use outboard_driver::{Table, call};
use outboard_wire::DevicePtr;
use parking_lot::Mutex;

use super::transfer::CopySite;
use crate::io::{Bulk, KnownMemory, Stay};
use crate::objects::Handle;

/// What an adapter knows of an allocation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registered(Arc<Mutex<Knowledge>>);

#[derive(Default)]
enum Knowledge {
    #[default]
    NotAsked,
    Asked,
    Known(Arc<RegisteredMemory>),
    Refused,
}

/// Memory that an adapter knows, and the reason for which the session is not suspended.
pub(crate) struct RegisteredMemory {
    _known: KnownMemory,
    _stay: Stay,
}

impl Registered {
    /// The allocation, `bytes` from `base` on, if the adapter of the site's session knows it. If
    /// that has not been asked, it is, on a helper thread.
    pub(crate) fn known(
        &self,
        site: &CopySite<'_>,
        (base, bytes): (DevicePtr, u64),
    ) -> Option<Arc<RegisteredMemory>> {
        let mut knowledge = self.0.lock();
        match &*knowledge {
            Knowledge::Known(memory) => return Some(Arc::clone(memory)),
            Knowledge::Asked | Knowledge::Refused => return None,
            Knowledge::NotAsked => *knowledge = Knowledge::Asked,
        }
        drop(knowledge);
        let (table, context, bulk) = (site.table, Handle::new(site.context), site.bulk.clone());
        let (registered, stay) = (self.clone(), site.replier.stay());
        site.watcher.helpers().run(move || {
            let entered = call!(table, cuCtxSetCurrent(context.get()));
            let known = entered.ok().and_then(|()| register(table, &bulk, (base, bytes)));
            *registered.0.lock() = known.map_or(Knowledge::Refused, |known| {
                Knowledge::Known(Arc::new(RegisteredMemory { _known: known, _stay: stay }))
            });
        });
        None
    }
}

impl std::fmt::Debug for Knowledge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Knowledge::NotAsked => "NotAsked",
            Knowledge::Asked => "Asked",
            Knowledge::Known(_) => "Known",
            Knowledge::Refused => "Refused",
        })
    }
}

/// The context is current.
fn register(table: &Table, bulk: &Bulk, (base, bytes): (DevicePtr, u64)) -> Option<KnownMemory> {
    if attribute(table, A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED) != Ok(1) {
        return None;
    }
    let buffer = dma_buf(table, base, bytes);
    let buffer = match &buffer {
        Ok(buffer) => Ok(buffer.as_fd()),
        Err(why) => Err(why.clone()),
    };
    // SAFETY: the driver keeps the memory behind a dma-buf for as long as that is registered; the
    // module by which adapters' drivers ask for a device's memory revokes what is freed; and the
    // kernel keeps pages of a process that an adapter knows.
    unsafe { bulk.make_device_known((base.0, usize::try_from(bytes).ok()?), buffer) }
}

/// A descriptor for these bytes of a device, by which the kernel lets other devices reach them.
pub(super) fn dma_buf(table: &Table, base: DevicePtr, bytes: u64) -> Result<OwnedFd, String> {
    if attribute(table, A::CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED) != Ok(1) {
        return Err("the CUDA driver gives no dma-buf of device memory".to_owned());
    }
    let whole = bytes.next_multiple_of(rustix::param::page_size() as u64);
    let mut fd = -1;
    call!(
        table,
        cuMemGetHandleForAddressRange(
            (&raw mut fd).cast(),
            base.0,
            whole as usize,
            CUmemRangeHandleType::CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD,
            0
        )
    )
    .map_err(|error| {
        format!("the CUDA driver gave no dma-buf of device memory: error {}", error.0)
    })?;
    // SAFETY: a new descriptor, which nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes what adapters have written to the current context's device visible to its work.
pub(super) fn flush(table: &Table) -> Result<(), CUresult> {
    const OWNER: u32 = CUGPUDirectRDMAWritesOrdering::CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER.0;
    if attribute(table, A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING)? >= OWNER as i32 {
        return Ok(());
    }
    call!(
        table,
        cuFlushGPUDirectRDMAWrites(
            CUflushGPUDirectRDMAWritesTarget::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX,
            CUflushGPUDirectRDMAWritesScope::CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER
        )
    )
}

/// Of the current context's device.
fn attribute(table: &Table, attribute: A) -> Result<i32, CUresult> {
    let (mut device, mut value) = (0, 0);
    call!(table, cuCtxGetDevice(&raw mut device))?;
    call!(table, cuDeviceGetAttribute(&raw mut value, attribute, device))?;
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::path::Path;

    use outboard_abi::{CUmemAccess_flags, CUmemAccessDesc};
    use outboard_driver::Library;
    use outboard_test_support::skip;
    use outboard_wire::device_id::DeviceId;

    use super::*;
    use crate::kinds::{location, memory_kind};
    use crate::recorded::table;

    const BYTES: u64 = 4 << 20;

    #[test]
    fn a_driver_that_cannot_gives_no_dma_buf() {
        let refused = dma_buf(table(), DevicePtr(0x1000), 4096).err();
        assert!(refused.is_some_and(|why| why.contains("gives no dma-buf")));
    }

    /// The kernel's name and size of what a descriptor stands for.
    fn kind_and_size(buffer: &OwnedFd) -> (String, u64) {
        let link = format!("/proc/self/fd/{}", buffer.as_raw_fd());
        let kind = std::fs::read_link(link).unwrap().to_string_lossy().into_owned();
        (kind, rustix::fs::seek(buffer, rustix::fs::SeekFrom::End(0)).unwrap())
    }

    /// Memory as programs have it here: a block of the arena, and an allocation whose bytes fill no
    /// page.
    fn memory(table: &Table) -> Result<[(DevicePtr, u64); 2], CUresult> {
        let (mut context, mut block, mut handle, mut allocation) = (core::ptr::null_mut(), 0, 0, 0);
        call!(table, cuInit(0))?;
        call!(table, cuDevicePrimaryCtxRetain(&raw mut context, 0))?;
        call!(table, cuCtxSetCurrent(context))?;
        let bytes = BYTES as usize;
        let prop = memory_kind(location(DeviceId::new(0)), 1, true);
        call!(table, cuMemAddressReserve(&raw mut block, bytes, 0, 0, 0))?;
        call!(table, cuMemCreate(&raw mut handle, bytes, &raw const prop, 0))?;
        call!(table, cuMemMap(block, bytes, 0, handle, 0))?;
        let flags = CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let open = CUmemAccessDesc { location: location(DeviceId::new(0)), flags };
        call!(table, cuMemSetAccess(block, bytes, &raw const open, 1))?;
        call!(table, cuMemAlloc_v2(&raw mut allocation, bytes - 100))?;
        Ok([(DevicePtr(block), BYTES), (DevicePtr(allocation), BYTES - 100)])
    }

    #[test]
    fn a_driver_of_a_gpu_gives_dma_bufs_for_memory_of_both_kinds() {
        let Some(driver) = std::env::var_os("OUTBOARD_TEST_GPU_DRIVER") else {
            skip!("OUTBOARD_TEST_GPU_DRIVER names no driver of a GPU");
        };
        // SAFETY: it is a driver, as whoever sets the variable says.
        let library = unsafe { Library::load(Path::new(&driver)) }.unwrap();
        let table = &library.table;
        for (address, bytes) in memory(table).unwrap() {
            let buffer = dma_buf(table, address, bytes).unwrap();
            let (kind, size) = kind_and_size(&buffer);
            eprintln!("{bytes} bytes of device memory: {kind}, {size} bytes");
            assert!(kind.starts_with("/dmabuf:"), "{kind}");
            assert_eq!(size, BYTES);
        }
        eprintln!(
            "GPUDirect RDMA: {:?}, order of writes: {:?}, flush: {:?}",
            attribute(table, A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
            attribute(table, A::CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING),
            flush(table)
        );
    }
}
