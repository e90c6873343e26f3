use proptest::prelude::*;

use super::*;
use crate::testing::cases;

/// Names of CKB 0.210 and of what is linked into it, and what remains of them.
const NAMES: &[(&str, &str)] = &cases! {
    "main" => "main";
    "ext4_sync_file" => "ext4_sync_file";
    "rocksdb_transaction_put_cf" => "rocksdb_transaction_put_cf";
    "ckb_vm_x64_execute" => "ckb_vm_x64_execute";
    "[libc.so.6+0x1234]" => "[libc.so.6+0x1234]";
    "A<std::allocator<int> >::f{thunk}" => "A::f{thunk}";
    // Rust.
    "ckb_chain::verify::ConsumeUnverifiedBlocks::start" => "ckb_chain::verify::ConsumeUnverifiedBlocks::start";
    "ckb_verification_contextual::contextual_block_verifier::ContextualBlockVerifier<CS,MS>::verify"
        => "ckb_verification_contextual::contextual_block_verifier::ContextualBlockVerifier<CS, MS>::verify";
    "ckb_script::scheduler::Scheduler<DL,V,M>::run::h0123456789abcdef"
        => "ckb_script::scheduler::Scheduler<DL, V, M>::run";
    "<ckb_script::syscalls::load_block_extension::LoadBlockExtension<DL> as ckb_vm::syscalls::Syscalls<Mac>>::ecall"
        => "<ckb_script::syscalls::load_block_extension::LoadBlockExtension<DL> as Syscalls<Mac>>::ecall";
    "<ckb_network::protocols::identify::IdentifyProtocol<T> as tentacle::traits::ServiceProtocol>::init::{{closure}}::{{closure}}"
        => "<ckb_network::protocols::identify::IdentifyProtocol<T> as ServiceProtocol>::init::{closure}";
    "ckb_chain_spec::_::<impl serde_core::ser::Serialize for ckb_chain_spec::Params>::serialize"
        => "ckb_chain_spec::_::<impl Serialize for Params>::serialize";
    "tokio::runtime::scheduler::multi_thread::worker::<impl tokio::runtime::scheduler::multi_thread::handle::Handle>::schedule_local"
        => "tokio::runtime::scheduler::multi_thread::worker::<impl tokio::runtime::scheduler::multi_thread::handle::Handle>::schedule_local";
    "tokio::runtime::task::core::Core<tokio::runtime::blocking::task::BlockingTask<ckb_network::services::dump_peer_store::DumpPeerStoreService>, tokio::runtime::blocking::schedule::BlockingSchedule>::poll::{closure#0}"
        => "tokio::runtime::task::core::Core<…>::poll::{closure}";
    "core::ptr::drop_in_place<alloc::vec::Vec<ckb_types::core::views::TransactionView>>"
        => "core::ptr::drop_in_place<Vec<TransactionView>>";
    "std::sys::backtrace::__rust_begin_short_backtrace::<ckb_chain::init::start_chain_services::{closure#1}, ()>"
        => "std::sys::backtrace::__rust_begin_short_backtrace<start_chain_services::{closure}, ()>";
    "<alloc::boxed::Box<dyn core::ops::function::FnOnce<(), Output = ()> + core::marker::Send> as core::ops::function::FnOnce<()>>::call_once"
        => "<alloc::boxed::Box<dyn FnOnce<(), Output = ()> + Send> as FnOnce<()>>::call_once";
    "core::ops::function::FnOnce::call_once{{vtable.shim}}" => "core::ops::function::FnOnce::call_once{shim}";
    "<str>::len" => "<str>::len";
    "<[u8; 32] as core::fmt::Debug>::fmt" => "<[u8; 32] as Debug>::fmt";
    "<&mut T as core::fmt::Debug>::fmt" => "<&mut T as Debug>::fmt";
    "rayon_core::job::StackJob<L,F,R>::run_inline" => "rayon_core::job::StackJob<L, F, R>::run_inline";
    "<rayon_core::job::StackJob<rayon_core::latch::SpinLatch<'_>, rayon_core::join::join_context::call_b, ()> as rayon_core::job::Job>::execute"
        => "<rayon_core::job::StackJob<SpinLatch, call_b, ()> as Job>::execute";
    "a::apply::<fn(b::C) -> d::E, f::G>" => "a::apply<fn(C) -> E, G>";
    // C++.
    "rocksdb::DBImpl::SyncWAL" => "rocksdb::DBImpl::SyncWAL";
    "rocksdb::DBImpl::SyncWAL()" => "rocksdb::DBImpl::SyncWAL";
    "rocksdb::BlockBasedTable::Get(rocksdb::ReadOptions const&, rocksdb::Slice const&, rocksdb::GetContext*, rocksdb::SliceTransform const*, bool)"
        => "rocksdb::BlockBasedTable::Get";
    "rocksdb::Version::GetCreationTime() const" => "rocksdb::Version::GetCreationTime";
    "rocksdb::Status::operator=(rocksdb::Status const&) [clone .isra.0]" => "rocksdb::Status::operator=";
    "foo::operator< <Foo>" => "foo::operator< <Foo>";
    "Foo::operator()(int) const" => "Foo::operator()";
    "Foo::operator[]" => "Foo::operator[]";
    "Foo::operator char const*" => "Foo::operator char const*";
    "Foo::operator->() const" => "Foo::operator->";
    "std::ostream::operator<<(int)" => "std::ostream::operator<<";
    "std::vector<std::pair<int, rocksdb::Slice>, std::allocator<std::pair<int, rocksdb::Slice> > >::push_back"
        => "std::vector<pair<int, Slice>>::push_back";
    "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::append"
        => "std::string::append";
    "std::unique_ptr<rocksdb::FilterPolicy, std::default_delete<rocksdb::FilterPolicy> >::~unique_ptr"
        => "std::unique_ptr<FilterPolicy>::~unique_ptr";
    "rocksdb::(anonymous namespace)::PosixFileSystem::NewWritableFile"
        => "rocksdb::(anonymous namespace)::PosixFileSystem::NewWritableFile";
    "rocksdb::DBImpl::Flush() const::{lambda(rocksdb::Status const&)#2}::operator()"
        => "rocksdb::DBImpl::Flush::{lambda#2}::operator()";
    "std::thread::_State_impl<std::thread::_Invoker<std::tuple<rocksdb::BlockBasedTableBuilder::StartParallelCompression()::{lambda()#1}> > >::_M_run()"
        => "std::thread::_State_impl<_Invoker<…>>::_M_run";
    // Others.
    "main.(*Server).Serve" => "main.(*Server).Serve";
    "runtime.mapassign_fast64" => "runtime.mapassign_fast64";
    "main.Map[go.shape.int,go.shape.string]" => "main.Map[go.shape.int,go.shape.string]";
    // What is no name of anything.
    "" => "";
    "a<b" => "a<b";
    "a>b" => "a>b";
    "(" => "(";
    "<>" => "<>";
};

#[test]
fn a_name_keeps_its_path_and_of_types_their_last_parts() {
    for (name, short) in NAMES {
        assert_eq!(shorten(name), *short, "{name}");
    }
}

#[test]
fn what_is_short_is_not_made_shorter() {
    for (_, short) in NAMES {
        assert_eq!(shorten(short), *short);
    }
}

#[test]
fn a_name_that_is_too_long_or_too_deep_stays_as_it_is() {
    let long = format!("a<{}>", "b::".repeat(2000));
    assert_eq!(shorten(&long), long);
    let deep = format!("{}{}", "a<".repeat(33), ">".repeat(33));
    assert_eq!(shorten(&deep), deep);
    let less = format!("{}b{}", "a<".repeat(32), ">".repeat(32));
    assert_ne!(shorten(&less), less);
}

proptest! {
    #[test]
    fn any_text_is_taken_for_a_name(name in "([<>(){}\\[\\]:,#a-c ]|::|->|operator| as | for |impl |…|closure|lambda){0,40}") {
        let short = shorten(&name);
        prop_assert!(short.len() <= 4 * name.len() + 16, "{name}: {short}");
    }
}
