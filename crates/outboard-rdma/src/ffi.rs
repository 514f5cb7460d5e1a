//! Structures and numbers of `infiniband/verbs.h`, by hand: those that Outboard uses. A test
//! (`layout.rs`) compares them with the header.
//!
//! Structures that the library makes are described up to the last field that is used here, and
//! are only ever reached through pointers.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// `struct ibv_device`, which only the library looks into.
#[repr(C)]
pub(crate) struct Device {
    _private: [u8; 0],
}

/// `struct ibv_context`, up to the descriptors.
#[repr(C)]
pub(crate) struct Context {
    pub(crate) device: *mut Device,
    pub(crate) ops: ContextOps,
    pub(crate) cmd_fd: c_int,
    pub(crate) async_fd: c_int,
}

/// A function that nobody calls through this table any more.
type Former = Option<unsafe extern "C" fn()>;

/// `struct ibv_context_ops`: what the header's inline functions call.
#[repr(C)]
pub(crate) struct ContextOps {
    _query_and_register: [Former; 7],
    _memory_windows: [Former; 3],
    _create_cq: Former,
    pub(crate) poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Completion) -> c_int>,
    pub(crate) req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    _cq_and_srq: [Former; 7],
    _post_srq_recv: Former,
    _queue_pairs: [Former; 4],
    pub(crate) post_send:
        Option<unsafe extern "C" fn(*mut QueuePair, *mut SendWork, *mut *mut SendWork) -> c_int>,
    pub(crate) post_recv: Option<
        unsafe extern "C" fn(*mut QueuePair, *mut ReceiveWork, *mut *mut ReceiveWork) -> c_int,
    >,
    _addresses_and_multicast: [Former; 5],
}

/// `struct ibv_comp_channel`, up to the descriptor.
#[repr(C)]
pub(crate) struct Channel {
    pub(crate) context: *mut Context,
    pub(crate) fd: c_int,
}

/// `struct ibv_cq`, its first field.
#[repr(C)]
pub(crate) struct Cq {
    pub(crate) context: *mut Context,
}

/// `struct ibv_pd`, its first field.
#[repr(C)]
pub(crate) struct Domain {
    pub(crate) context: *mut Context,
}

/// `struct ibv_mr`.
#[repr(C)]
pub(crate) struct Region {
    pub(crate) context: *mut Context,
    pub(crate) pd: *mut Domain,
    pub(crate) addr: *mut c_void,
    pub(crate) length: usize,
    pub(crate) handle: u32,
    pub(crate) lkey: u32,
    pub(crate) rkey: u32,
}

/// `struct ibv_qp`, up to its number.
#[repr(C)]
pub(crate) struct QueuePair {
    pub(crate) context: *mut Context,
    pub(crate) qp_context: *mut c_void,
    pub(crate) pd: *mut Domain,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) handle: u32,
    pub(crate) qp_num: u32,
}

/// `struct ibv_qp_cap`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct QueuePairCap {
    pub(crate) max_send_wr: u32,
    pub(crate) max_recv_wr: u32,
    pub(crate) max_send_sge: u32,
    pub(crate) max_recv_sge: u32,
    pub(crate) max_inline_data: u32,
}

/// `struct ibv_qp_init_attr`.
#[repr(C)]
pub(crate) struct QueuePairInit {
    pub(crate) qp_context: *mut c_void,
    pub(crate) send_cq: *mut Cq,
    pub(crate) recv_cq: *mut Cq,
    pub(crate) srq: *mut c_void,
    pub(crate) cap: QueuePairCap,
    pub(crate) qp_type: c_uint,
    pub(crate) sq_sig_all: c_int,
}

/// `struct ibv_global_route`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct GlobalRoute {
    pub(crate) dgid: GidBytes,
    pub(crate) flow_label: u32,
    pub(crate) sgid_index: u8,
    pub(crate) hop_limit: u8,
    pub(crate) traffic_class: u8,
}

/// `union ibv_gid`, which is aligned as its 64-bit halves are.
#[repr(C, align(8))]
#[derive(Clone, Copy, Default)]
pub(crate) struct GidBytes(pub(crate) [u8; 16]);

/// `struct ibv_ah_attr`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct AddressHandle {
    pub(crate) grh: GlobalRoute,
    pub(crate) dlid: u16,
    pub(crate) sl: u8,
    pub(crate) src_path_bits: u8,
    pub(crate) static_rate: u8,
    pub(crate) is_global: u8,
    pub(crate) port_num: u8,
}

/// `struct ibv_qp_attr`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct QueuePairAttr {
    pub(crate) qp_state: c_uint,
    pub(crate) cur_qp_state: c_uint,
    pub(crate) path_mtu: c_uint,
    pub(crate) path_mig_state: c_uint,
    pub(crate) qkey: u32,
    pub(crate) rq_psn: u32,
    pub(crate) sq_psn: u32,
    pub(crate) dest_qp_num: u32,
    pub(crate) qp_access_flags: c_uint,
    pub(crate) cap: QueuePairCap,
    pub(crate) ah_attr: AddressHandle,
    pub(crate) alt_ah_attr: AddressHandle,
    pub(crate) pkey_index: u16,
    pub(crate) alt_pkey_index: u16,
    pub(crate) en_sqd_async_notify: u8,
    pub(crate) sq_draining: u8,
    pub(crate) max_rd_atomic: u8,
    pub(crate) max_dest_rd_atomic: u8,
    pub(crate) min_rnr_timer: u8,
    pub(crate) port_num: u8,
    pub(crate) timeout: u8,
    pub(crate) retry_cnt: u8,
    pub(crate) rnr_retry: u8,
    pub(crate) alt_port_num: u8,
    pub(crate) alt_timeout: u8,
    pub(crate) rate_limit: u32,
}

/// `struct ibv_sge`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) length: u32,
    pub(crate) lkey: u32,
}

/// `struct ibv_send_wr`, of whose unions only the fields of remote writes are named.
#[repr(C)]
pub(crate) struct SendWork {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut SendWork,
    pub(crate) sg_list: *mut Piece,
    pub(crate) num_sge: c_int,
    pub(crate) opcode: c_uint,
    pub(crate) send_flags: c_uint,
    /// In the network's order.
    pub(crate) imm_data: u32,
    pub(crate) remote_addr: u64,
    pub(crate) rkey: u32,
    pub(crate) _others: [u64; 9],
}

/// `struct ibv_recv_wr`.
#[repr(C)]
pub(crate) struct ReceiveWork {
    pub(crate) wr_id: u64,
    pub(crate) next: *mut ReceiveWork,
    pub(crate) sg_list: *mut Piece,
    pub(crate) num_sge: c_int,
}

/// `struct ibv_wc`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Completion {
    pub(crate) wr_id: u64,
    pub(crate) status: c_uint,
    pub(crate) opcode: c_uint,
    pub(crate) vendor_err: u32,
    pub(crate) byte_len: u32,
    /// In the network's order.
    pub(crate) imm_data: u32,
    pub(crate) qp_num: u32,
    pub(crate) src_qp: u32,
    pub(crate) wc_flags: c_uint,
    pub(crate) pkey_index: u16,
    pub(crate) slid: u16,
    pub(crate) sl: u8,
    pub(crate) dlid_path_bits: u8,
}

/// `struct ibv_async_event`.
#[repr(C)]
pub(crate) struct AsyncEvent {
    pub(crate) element: *mut c_void,
    pub(crate) event_type: c_uint,
}

/// `struct ibv_port_attr`.
#[repr(C)]
#[derive(Default)]
pub(crate) struct PortAttr {
    pub(crate) state: c_uint,
    pub(crate) max_mtu: c_uint,
    pub(crate) active_mtu: c_uint,
    pub(crate) gid_tbl_len: c_int,
    pub(crate) port_cap_flags: u32,
    pub(crate) max_msg_sz: u32,
    pub(crate) bad_pkey_cntr: u32,
    pub(crate) qkey_viol_cntr: u32,
    pub(crate) pkey_tbl_len: u16,
    pub(crate) lid: u16,
    pub(crate) sm_lid: u16,
    pub(crate) lmc: u8,
    pub(crate) max_vl_num: u8,
    pub(crate) sm_sl: u8,
    pub(crate) subnet_timeout: u8,
    pub(crate) init_type_reply: u8,
    pub(crate) active_width: u8,
    pub(crate) active_speed: u8,
    pub(crate) phys_state: u8,
    pub(crate) link_layer: u8,
    pub(crate) flags: u8,
    pub(crate) port_cap_flags2: u16,
}

/// `struct ibv_device_attr`.
#[repr(C)]
pub(crate) struct DeviceAttr {
    pub(crate) fw_ver: [c_char; 64],
    pub(crate) node_guid: u64,
    pub(crate) sys_image_guid: u64,
    pub(crate) max_mr_size: u64,
    pub(crate) page_size_cap: u64,
    pub(crate) vendor_id: u32,
    pub(crate) vendor_part_id: u32,
    pub(crate) hw_ver: u32,
    pub(crate) max_qp: c_int,
    pub(crate) max_qp_wr: c_int,
    pub(crate) device_cap_flags: c_uint,
    pub(crate) max_sge: c_int,
    pub(crate) max_sge_rd: c_int,
    pub(crate) max_cq: c_int,
    pub(crate) max_cqe: c_int,
    pub(crate) _regions_and_domains: [c_int; 2],
    pub(crate) max_qp_rd_atom: c_int,
    pub(crate) _other_reads: [c_int; 2],
    pub(crate) max_qp_init_rd_atom: c_int,
    pub(crate) _further: [c_int; 16],
    pub(crate) max_pkeys: u16,
    pub(crate) local_ca_ack_delay: u8,
    pub(crate) phys_port_cnt: u8,
}

/// `struct ibv_gid_entry`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct GidEntry {
    pub(crate) gid: GidBytes,
    pub(crate) gid_index: u32,
    pub(crate) port_num: u32,
    pub(crate) gid_type: u32,
    pub(crate) ndev_ifindex: u32,
}

/// Names of the header with their numbers, also as a list for the test.
macro_rules! numbers {
    ($($name:ident = $value:expr;)*) => {
        $(pub(crate) const $name: c_uint = $value;)*
        #[cfg(test)]
        pub(crate) const NUMBERS: &[(&str, c_uint)] = &[$((stringify!($name), $name)),*];
    };
}

numbers! {
    IBV_PORT_ACTIVE = 4;
    IBV_LINK_LAYER_ETHERNET = 2;
    IBV_GID_TYPE_IB = 0;
    IBV_GID_TYPE_ROCE_V1 = 1;
    IBV_GID_TYPE_ROCE_V2 = 2;
    IBV_MTU_256 = 1;
    IBV_MTU_4096 = 5;
    IBV_QPT_RC = 2;
    IBV_QPS_INIT = 1;
    IBV_QPS_RTR = 2;
    IBV_QPS_RTS = 3;
    IBV_QPS_ERR = 6;
    IBV_QP_STATE = 1;
    IBV_QP_ACCESS_FLAGS = 1 << 3;
    IBV_QP_PKEY_INDEX = 1 << 4;
    IBV_QP_PORT = 1 << 5;
    IBV_QP_AV = 1 << 7;
    IBV_QP_PATH_MTU = 1 << 8;
    IBV_QP_TIMEOUT = 1 << 9;
    IBV_QP_RETRY_CNT = 1 << 10;
    IBV_QP_RNR_RETRY = 1 << 11;
    IBV_QP_RQ_PSN = 1 << 12;
    IBV_QP_MAX_QP_RD_ATOMIC = 1 << 13;
    IBV_QP_MIN_RNR_TIMER = 1 << 15;
    IBV_QP_SQ_PSN = 1 << 16;
    IBV_QP_MAX_DEST_RD_ATOMIC = 1 << 17;
    IBV_QP_DEST_QPN = 1 << 20;
    IBV_ACCESS_LOCAL_WRITE = 1;
    IBV_ACCESS_REMOTE_WRITE = 1 << 1;
    IBV_ACCESS_REMOTE_READ = 1 << 2;
    IBV_FORK_UNNEEDED = 2;
    IBV_WR_RDMA_WRITE = 0;
    IBV_WR_RDMA_WRITE_WITH_IMM = 1;
    IBV_WR_SEND_WITH_IMM = 3;
    IBV_WR_RDMA_READ = 4;
    IBV_SEND_SIGNALED = 1 << 1;
    IBV_WC_SUCCESS = 0;
    IBV_WC_WR_FLUSH_ERR = 5;
    IBV_WC_RETRY_EXC_ERR = 12;
    IBV_WC_WITH_IMM = 1 << 1;
    IBV_EVENT_CQ_ERR = 0;
    IBV_EVENT_QP_FATAL = 1;
    IBV_EVENT_QP_REQ_ERR = 2;
    IBV_EVENT_QP_ACCESS_ERR = 3;
    IBV_EVENT_DEVICE_FATAL = 8;
}

#[cfg(test)]
mod layout;
