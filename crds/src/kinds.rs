//! THE list of kinds. A kind is one line in it, a folder here (`kinds/NAME`: its spec and its descriptor), and a folder of the
//! same name in the agent (what of it is attached to, and what its rows are called). Nothing else names a kind.

/// Hands the list to a macro: for each kind, what it is in a sentence; its name in Rust and in YAML; the folder's; and that of
/// its spec. What a user must write for it at least is an example in a sentence of the API server's.
#[macro_export]
macro_rules! for_each_kind {
    ($use:ident!) => {
        $use! {
            /// Latency of the RocksDB C API, as CKB calls it.
            Rocksdb "rocksdb" rocksdb RocksDbProbe "rocksdb: {}",
            /// Latency of functions of the process, by a pattern of their names.
            Functions "functions" functions FunctionsProbe "functions: {match: 'ckb_chain::*'}",
            /// Probes that a program's authors left in it (USDT), such as PostgreSQL's: how often each is met.
            Usdt "usdt" usdt UsdtProbe "usdt: {provider: postgresql}",
            /// Latency of functions of the kernel, on behalf of the process, by a pattern of their names.
            KernelFunctions "kernelFunctions" kernel_functions KernelFunctionsProbe "kernelFunctions: {match: 'ext4_sync_*'}",
            /// System calls of the process: how many, how long they take, and which fail.
            Syscalls "syscalls" syscalls SyscallsProbe "syscalls: {}",
            /// Requests to the node's disks: how many, how large, how long they waited, and how long the device had them.
            BlockIo "blockIo" block_io BlockIoProbe "blockIo: {}",
            /// TCP connections of the process, by peer, network or port.
            Tcp "tcp" tcp TcpProbe "tcp: {}",
            /// What runs in the target's pod, and how it ends.
            Processes "processes" processes ProcessesProbe "processes: {}",
            /// What each block cost a CKB node: how long its verification took, and on what.
            Chain "chain" chain ChainProbe "chain: {}",
            /// Stack profiles: where the time and the memory go, and how they divide among the parts of CKB.
            Profile "profile" profile ProfileProbe "profile: {}",
        }
    };
}

macro_rules! define_kinds {
    ($($(#[$doc:meta])* $kind:ident $name:literal $module:ident $spec:ident $example:literal,)*) => {
        $(pub mod $module;)*

        /// The kinds.
        #[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
        pub enum Kind {
            $($(#[$doc])* $kind,)*
        }

        impl Kind {
            /// Every kind, in the order of the list.
            pub const ALL: &[Self] = &[$(Self::$kind),*];

            /// Its name in the spec, the status and the metrics.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)*
                }
            }

            /// What it gives.
            pub fn descriptor(self) -> &'static Descriptor {
                match self {
                    $(Self::$kind => &$module::DESCRIPTOR,)*
                }
            }
        }

        /// What a probe asks: its kind, with that kind's spec.
        #[derive(Clone, Debug, PartialEq)]
        #[allow(missing_docs, reason = "the kinds' own docs say it")]
        pub enum KindSpec {
            $($kind($module::$spec),)*
        }

        impl KindSpec {
            /// The kind of the probe.
            pub fn kind(&self) -> Kind {
                match self {
                    $(Self::$kind(_) => Kind::$kind,)*
                }
            }
        }

        $(impl From<$module::$spec> for KindSpec {
            fn from(spec: $module::$spec) -> Self {
                Self::$kind(spec)
            }
        })*

        /// One thing to measure. Exactly one kind is set.
        #[derive(Clone, Debug, Default, Deserialize, KubeSchema, PartialEq, Serialize)]
        #[serde(rename_all = "camelCase")]
        #[x_kube(validation = Rule::new(concat!($("(has(self.", $name, ") ? 1 : 0) + ",)* "0 == 1"))
            .message(concat!("a probe needs exactly one kind, such as ", $($example, ", or ",)* "what else kubectl explain ckbprobe.spec.probes lists")))]
        pub struct Probe {
            /// Names the probe in the status and in the metrics' label `probe`.
            #[schemars(length(max = 63))]
            #[x_kube(validation = Rule::new("self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')")
                .message("a probe's name must be a label: at most 63 of a-z, 0-9 and '-', beginning and ending with a letter or digit"))]
            pub name: String,

            $(
                $(#[$doc])*
                #[serde(default, skip_serializing_if = "Option::is_none")]
                #[schemars(transform = without_null)]
                pub $module: Option<$module::$spec>,
            )*
        }

        impl Probe {
            /// A probe that asks this.
            pub fn new(name: &str, question: KindSpec) -> Self {
                let mut probe = Self { name: name.to_string(), ..Self::default() };
                match question {
                    $(KindSpec::$kind(spec) => probe.$module = Some(spec),)*
                }
                probe
            }

            /// Its profile, where that is taken only while something is not as usual.
            pub fn capture(&self) -> Option<&profile::ProfileProbe> {
                self.profile.as_ref().filter(|profile| profile.capture_on_anomaly)
            }

            /// What it asks; None where no kind is set that this version knows.
            pub fn kind_spec(&self) -> Option<KindSpec> {
                $(if let Some(spec) = &self.$module {
                    return Some(KindSpec::$kind(spec.clone()));
                })*
                None
            }
        }
    };
}

use kube::KubeSchema;
use schemars::Schema;
use serde::{Deserialize, Serialize};

use crate::Descriptor;

/// What is asked of a profile that is taken only while something is not as usual.
pub type CaptureSpec = profile::ProfileProbe;

/// A kind that is there is not null.
fn without_null(schema: &mut Schema) {
    let types = schema.get("type").and_then(|types| types.as_array());
    if let Some(present) = types.and_then(|types| types.first()).cloned() {
        schema.insert("type".to_string(), present);
    }
}

for_each_kind!(define_kinds!);
