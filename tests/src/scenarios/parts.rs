//! What agents write of profiles: of their own node only, and what the operator makes of it.

use ckb_probe_crds::{
    CkbProfile, NodeProbe, NodeProbeSpec, PART_SLOTS, PPROF_LIMIT, PartLabels, PodReference,
    ProfileCounts, ProfileMode, ProfilePart, ProfilePartSpec, ProfileWindow, part_name,
};
use ckb_probe_profiles::{Frame, Profile, Stack, pprof::Limits};
use k8s_openapi::{
    ByteString,
    api::{
        authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
        core::v1::ServiceAccount,
    },
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, Client, Config, api::PostParams, config::AuthInfo};

use super::prelude::*;

/// Until what was written is published and deleted: all that are measured have sent their part.
const SOON: Duration = Duration::from_secs(20);

pub async fn run(scene: &mut Scene<'_>) -> Result<()> {
    let cluster = scene.cluster;
    let target = scene.deploy(Load::Steady).await?;
    // No window begins for a while: until then nobody but this test writes parts of it.
    let now = Timestamp::now().as_second();
    let every = rarely(now);
    let before = before(now, every);
    let profile = json!({ "modes": ["Memory"], "every": format!("{every}h"), "keep": 2 });
    let probe = super::profiles::asking(scene, &profile);
    scene.apply_probe(probe).await?;
    let (asks, pod) = wait::until("the order", ATTACH, async || {
        let orders = scene.node_probes().await?;
        let mut orders = orders.iter().flat_map(|node| &node.spec.assignments);
        let found = orders.find(|order| order.pod.name == target.pod);
        let order = found.ok_or_else(|| Failure::missing("an order for the workload"))?;
        Ok((order.asks.clone(), order.pod.clone()))
    })
    .await?;
    let agent = wait::until("the agent", ATTACH, async || cluster.agent_pod().await).await?;
    let node = agent.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let node = node.unwrap_or_default();
    let client = as_agent(scene, &agent).await?;
    reports_of_its_node(scene, &client, &node).await?;
    let writer = Writer {
        parts: Api::namespaced(client, SYSTEM),
        node,
        asks,
        pod,
        before,
    };
    held_to_its_node(scene, &writer).await?;
    published(scene, &writer).await
}

/// From one window to the next, such that none is under way now or begins within half an hour: they begin at multiples of it.
fn rarely(now: i64) -> i64 {
    let is_far = |hours: &i64| (60..hours * 3600 - 1800).contains(&(now % (hours * 3600)));
    (18..=24).rev().find(is_far).unwrap_or(24)
}

/// The number of the window before those that this test is about: no others are taken than there can be by now.
fn before(now: i64, hours: i64) -> u64 {
    (now / (hours * 3600) - WINDOWS.len() as i64).unsigned_abs()
}

/// Which windows there are, of which two are kept.
const WINDOWS: [u64; 3] = [1, 2, 3];

/// The client that the agent in this pod has.
async fn as_agent(scene: &Scene<'_>, agent: &Pod) -> Result<Client> {
    let account = agent
        .spec
        .as_ref()
        .and_then(|spec| spec.service_account_name.clone());
    let accounts = scene.cluster.api::<ServiceAccount>(SYSTEM);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: Vec::new(),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Pod".into()),
                name: Some(agent.name_any()),
                uid: agent.uid(),
            }),
            expiration_seconds: Some(600),
        },
        ..TokenRequest::default()
    };
    let token = accounts
        .create_token_request(
            &account.unwrap_or_default(),
            &PostParams::default(),
            &request,
        )
        .await?;
    let token = token.status.map(|status| status.token).unwrap_or_default();
    let mut config = Config::infer()
        .await
        .map_err(Failure::format("KUBECONFIG"))?;
    config.auth_info = AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    };
    Ok(Client::try_from(config)?)
}

/// The NodeProbe of a node that there is not: the operator takes it away as soon as it sees it, and it stays for as long as this has it.
const ANOTHER: &str = "another-node";
const STAY: &str = "tests.ckbprobe.dev/stay";

/// It reports for its node, and for no other; and nobody gives itself orders.
async fn reports_of_its_node(scene: &Scene<'_>, client: &Client, node: &str) -> Result<()> {
    let all = scene.cluster.api::<NodeProbe>(SYSTEM);
    let mut another = NodeProbe::new(
        ANOTHER,
        NodeProbeSpec {
            assignments: Vec::new(),
        },
    );
    another.metadata.finalizers = Some(vec![STAY.into()]);
    all.create(&PostParams::default(), &another).await?;
    let own: Api<NodeProbe> = Api::namespaced(client.clone(), SYSTEM);
    let nothing = Patch::Merge(json!({ "status": {} }));
    let status = |name| {
        let (own, nothing) = (&own, &nothing);
        async move {
            own.patch_status(name, &PatchParams::default(), nothing)
                .await
        }
    };
    let (of_own, of_another) = (status(node).await, status(ANOTHER).await);
    let orders = Patch::Merge(json!({ "spec": { "assignments": [] } }));
    let orders = own.patch(node, &PatchParams::default(), &orders).await;
    let gone = Patch::Merge(json!({ "metadata": { "finalizers": null } }));
    all.patch(ANOTHER, &PatchParams::default(), &gone).await?;
    scene.equal("reports for its own node that are taken", of_own.is_ok(), 1);
    scene.equal(
        "reports for another node, and orders for its own, that are refused",
        u64::from(is_forbidden(of_another.map(drop))) + u64::from(is_forbidden(orders.map(drop))),
        2,
    );
    Ok(())
}

/// Who writes parts of profiles as the agent of a node does that is asked for some of this pod.
struct Writer {
    parts: Api<ProfilePart>,
    node: String,
    asks: String,
    pod: PodReference,
    /// See [`before`].
    before: u64,
}

impl Writer {
    /// What answers this question, of a window.
    fn spec(&self, asks: &str, window: u64) -> ProfilePartSpec {
        let mut profile = Profile::of(ProfileMode::Memory);
        profile.stacks.add(&Stack {
            frames: vec![Frame::user("rocksdb_get_pinned_cf", "ckb")],
            thread: "verify_blocks",
            weights: &[window, window * 4096],
            ..Stack::default()
        });
        ProfilePartSpec {
            asks: asks.into(),
            probe: "flames".into(),
            pod: self.pod.clone(),
            container: "ckb".into(),
            mode: ProfileMode::Memory,
            window: ProfileWindow {
                number: self.before + window,
                began_at: MicroTime(Timestamp::now()),
                milliseconds: 30_000,
            },
            counts: ProfileCounts {
                samples: window,
                complete: window,
                ..ProfileCounts::default()
            },
            pprof: Some(ByteString(profile.to_pprof())),
            failure: None,
        }
    }

    /// Writes a part as agents do.
    async fn write(
        &self,
        name: &str,
        spec: &ProfilePartSpec,
        change: impl FnOnce(&mut serde_json::Value),
    ) -> kube::Result<()> {
        let mut part = json!({
            "apiVersion": "ckbprobe.dev/v1alpha1",
            "kind": "ProfilePart",
            "metadata": { "name": name, "labels": PartLabels::of(spec).to_map() },
            "spec": spec,
        });
        change(&mut part);
        let part = serde_json::from_value(part).map_err(kube::Error::SerdeError)?;
        self.parts.create(&PostParams::default(), &part).await?;
        Ok(())
    }
}

/// What the API server refuses, an agent that is another's by now cannot do.
async fn held_to_its_node(scene: &Scene<'_>, writer: &Writer) -> Result<()> {
    let Writer { parts, node, .. } = writer;
    let good = writer.spec(&writer.asks, 1);
    let own = part_name(node, PART_SLOTS - 1);
    let mut refused = 0;
    let names = [
        part_name("another-node", 0),
        part_name(node, PART_SLOTS),
        format!("{node}.00"),
        format!("{node}.x"),
        node.clone(),
        format!("{node}.1.2"),
    ];
    for name in &names {
        refused += u64::from(is_forbidden(writer.write(name, &good, |_| {}).await));
    }
    let mut large = good.clone();
    large.pprof = Some(ByteString(vec![0; PPROF_LIMIT + 3]));
    let large = writer.write(&own, &large, |_| {}).await;
    let finalizer = writer.write(&own, &good, |part| {
        part["metadata"]["finalizers"] = json!(["example.org/stay"]);
    });
    let annotation = writer.write(&own, &good, |part| {
        part["metadata"]["annotations"] = json!({ "a": "b" });
    });
    refused += u64::from(is_forbidden(finalizer.await));
    refused += u64::from(is_forbidden(annotation.await));
    scene.equal(
        "parts that are not its own, or hold something back, refused",
        refused,
        names.len() as u64 + 2,
    );
    scene.equal("parts of more than 512 KiB refused", large.is_err(), 1);
    let over = Patch::Merge(json!({ "spec": { "container": "another" } }));
    let over = parts.patch(&own, &PatchParams::default(), &over).await;
    let over = is_forbidden(over.map(drop));
    let read = is_forbidden(parts.list(&ListParams::default()).await.map(drop));
    let delete = is_forbidden(parts.delete(&own, &DeleteParams::default()).await.map(drop));
    scene.equal(
        "ways to read, change or delete parts",
        u64::from(!read) + u64::from(!over) + u64::from(!delete),
        0,
    );
    Ok(())
}

fn is_forbidden(result: kube::Result<()>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

async fn published(scene: &Scene<'_>, writer: &Writer) -> Result<()> {
    let profiles = scene.api::<CkbProfile>();
    let mut slot = 0;
    for window in WINDOWS {
        // Nobody's question in the same way, and a window that is far from now: dropped, and no obstacle.
        let nobodys = writer.spec("0000000000000000", window);
        let mut untimely = writer.spec(&writer.asks, window);
        untimely.window.number += 1_000_000;
        for spec in [untimely, nobodys, writer.spec(&writer.asks, window)] {
            slot += 1;
            let name = part_name(&writer.node, slot);
            writer.write(&name, &spec, |_| {}).await?;
        }
        let number = writer.before + window;
        let name = format!("{PROBE}.flames.memory.{number}");
        wait::until("the profile", SOON, async || {
            Ok(profiles.get(&name).await?)
        })
        .await?;
        // The API server's times are whole seconds.
        tokio::time::sleep(Duration::from_millis(1100)).await;
    }
    let kept = wait::until("the oldest to go", SOON, async || {
        let kept = profiles.list(&ListParams::default()).await?.items;
        let windows: BTreeSet<u64> = kept
            .iter()
            .map(|profile| profile.spec.window.number - writer.before)
            .collect();
        expect(windows == BTreeSet::from([2, 3]), "windows 2 and 3", || {
            format!("{windows:?}")
        })?;
        Ok(kept)
    })
    .await?;
    let uid = super::profiles::uid(scene).await?;
    let owned = kept.iter().filter(|profile| {
        let owners = profile.owner_references();
        owners.len() == 1 && Some(&owners[0].uid) == uid.as_ref()
    });
    scene.equal("profiles that the CkbProbe owns", owned.count(), 2);
    let mut weights = BTreeMap::new();
    for profile in &kept {
        let stacks = Profile::from_pprof(&profile.spec.pprof.0, &Limits::PART)
            .map_err(Failure::format("the pprof"))?
            .stacks;
        let whose = format!("{}/{}/ckb", scene.namespace, writer.pod.name);
        let own = stacks.filter(|stack| stack.target == whose);
        weights.insert(profile.spec.window.number - writer.before, own.total(0));
    }
    let expected = BTreeMap::from([(2, 2), (3, 3)]);
    expect(weights == expected, format!("{expected:?}"), || {
        format!("{weights:?}")
    })?;
    super::profiles::parts_gone(scene, SOON * 3).await?;
    super::profiles::gone_with_probe(scene).await
}

#[cfg(test)]
mod tests {
    use super::rarely;

    #[test]
    fn no_window_is_near() {
        const NOON: i64 = 20_000 * 86_400 + 43_200;
        assert_eq!(rarely(NOON), 24);
        for minute in (-1_440..=1_440).map(|minute| NOON + minute * 60) {
            let hours = rarely(minute);
            let passed = minute % (hours * 3600);
            assert!(
                passed >= 60 && hours * 3600 - passed > 1800,
                "{minute}: {hours} h"
            );
        }
    }
}
