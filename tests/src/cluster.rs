//! One namespace of an API server for one test, and the states of a fixture written into it.
//!
//! Owns: creation, change, deletion of fixture objects and what the server gave for their UIDs and addresses. Must not: decide what a
//! state means. [`Cluster::show`] makes the namespace hold exactly the objects of a fixture, so that files can be played one after the
//! other like the states of one cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, Error};
use loadtest::operator::loopback::Loopback;
use serde_json::{Value, json};

use crate::Outcome;
use crate::apiserver::ApiServer;
use crate::fixture::{self, Fixture, Key, Rewrites};
use crate::poll::{PATIENCE, eventually};

/// A namespace of its own and what has been written into it.
pub struct Cluster {
    server: &'static ApiServer,
    client: Client,
    namespace: String,
    rewrites: Rewrites,
    /// Which fixture UID stands behind each name at present.
    standing: BTreeMap<Key, String>,
    loopback: Loopback,
}

impl Cluster {
    /// A new namespace on the shared server, named after the test.
    pub async fn new(test: &str) -> Outcome<Self> {
        Self::on(ApiServer::shared().await?, test).await
    }

    /// A new namespace on this server.
    pub async fn on(server: &'static ApiServer, test: &str) -> Outcome<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let client = server.client().await?;
        let namespace = format!("{test}-{}", COUNT.fetch_add(1, Ordering::Relaxed));
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        Api::<Namespace>::all(client.clone()).create(&PostParams::default(), &object).await?;
        let loopback = Loopback::claim()?;
        Ok(Self { server, client, namespace, rewrites: Rewrites::default(), standing: BTreeMap::new(), loopback })
    }

    /// The namespace's name.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// A client with all rights.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The server behind it.
    pub fn server(&self) -> &'static ApiServer {
        self.server
    }

    /// What the server gave for a UID of the fixture; for a Pod address, the loopback address that stands for it.
    pub fn real<'a>(&'a self, in_fixture: &'a str) -> &'a str {
        self.rewrites.text.get(in_fixture).map_or(in_fixture, String::as_str)
    }

    /// Makes the namespace hold exactly this state. An object whose UID changed since the last state is removed and created anew.
    pub async fn show(&mut self, state: &Fixture) -> Outcome<()> {
        let wanted: BTreeSet<Key> = state.documents().iter().map(fixture::key).collect();
        let gone: Vec<Key> = self.standing.keys().filter(|key| !wanted.contains(key)).cloned().collect();
        for key in gone {
            self.remove(&key).await?;
        }
        self.assign_addresses(state);
        for document in state.documents() {
            self.place(document).await?;
        }
        // Annotations and status may name Pods that come later in the file, so they are written when all UIDs are known.
        for document in state.documents() {
            self.settle(document).await?;
        }
        Ok(())
    }

    /// An API for one of the three kinds in this namespace.
    pub fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// Removes an object whatever holds it: finalizers, grace.
    pub async fn remove(&mut self, key: &Key) -> Outcome<()> {
        self.standing.remove(key);
        let api = self.api(&key.kind);
        let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        absent_is_fine(api.patch(&key.name, &PatchParams::default(), &free).await)?;
        absent_is_fine(api.delete(&key.name, &DeleteParams::default().grace_period(0)).await)?;
        eventually(PATIENCE, &format!("removal of {key:?}"), || async {
            match api.get_opt(&key.name).await {
                Ok(None) => Ok(()),
                Ok(Some(_)) => Err("it is still there".to_owned()),
                Err(error) => Err(error.to_string()),
            }
        })
        .await
    }

    fn assign_addresses(&mut self, state: &Fixture) {
        for document in state.documents() {
            if let Some(address) = document["status"]["podIP"].as_str() {
                self.rewrites.text.entry(address.to_owned()).or_insert_with(|| self.loopback.next().to_string());
            }
        }
    }

    async fn place(&mut self, document: &Value) -> Outcome<()> {
        let (key, uid) = (fixture::key(document), fixture::uid(document));
        if self.standing.get(&key).is_some_and(|standing| *standing == uid) {
            return self.change(&key, document).await;
        }
        if self.standing.contains_key(&key) {
            self.remove(&key).await?;
        }
        let (object, _) = fixture::split(&self.rewrites.apply(document), &self.namespace);
        let created = self.api(&key.kind).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        self.rewrites.text.insert(uid.clone(), created.metadata.uid.unwrap_or_default());
        self.standing.insert(key, uid);
        Ok(())
    }

    async fn change(&self, key: &Key, document: &Value) -> Outcome<()> {
        let (object, _) = fixture::split(&self.rewrites.apply(document), &self.namespace);
        if key.kind == "Pod" {
            return self.bind(&key.name, &object).await;
        }
        let patch = json!({"metadata": {"labels": object["metadata"]["labels"]}, "spec": object["spec"]});
        self.api(&key.kind).patch(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// What may change of a standing Pod's spec: gates fall, then it is bound to a node.
    async fn bind(&self, name: &str, object: &Value) -> Outcome<()> {
        let pods = Api::<Pod>::namespaced(self.client.clone(), &self.namespace);
        let spec = pods.get(name).await?.spec.unwrap_or_default();
        if spec.scheduling_gates.is_some_and(|gates| !gates.is_empty()) && object["spec"]["schedulingGates"].is_null() {
            pods.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": {"schedulingGates": []}}))).await?;
        }
        if let (None, Some(node)) = (spec.node_name, object["spec"]["nodeName"].as_str()) {
            let binding =
                json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            let _: Value = pods.create_subresource("binding", name, &PostParams::default(), &binding).await?;
        }
        Ok(())
    }

    async fn settle(&self, document: &Value) -> Outcome<()> {
        let key = fixture::key(document);
        let api = self.api(&key.kind);
        let (object, status) = fixture::split(&self.rewrites.apply(document), &self.namespace);
        let standing = api.get(&key.name).await?;
        let metadata = json!({"metadata": {
            "labels": exact(standing.metadata.labels.as_ref(), &object["metadata"]["labels"]),
            "annotations": exact(standing.metadata.annotations.as_ref(), &object["metadata"]["annotations"]),
        }});
        api.patch(&key.name, &PatchParams::default(), &Patch::Merge(metadata)).await?;
        if let Some(status) = status {
            let mut whole = standing;
            whole = api.get(&whole.metadata.name.unwrap_or_default()).await?;
            whole.data["status"] = status;
            api.replace_status(&key.name, &PostParams::default(), &whole).await?;
        }
        if fixture::deleting(document) {
            api.delete(&key.name, &DeleteParams::default()).await?;
        }
        Ok(())
    }
}

/// A merge patch that leaves exactly the wanted entries.
fn exact(standing: Option<&BTreeMap<String, String>>, wanted: &Value) -> Value {
    let mut patch = wanted.as_object().cloned().unwrap_or_default();
    for name in standing.into_iter().flat_map(BTreeMap::keys) {
        patch.entry(name.clone()).or_insert(Value::Null);
    }
    Value::Object(patch)
}

fn resource(kind: &str) -> ApiResource {
    let (group, version) = if kind == "ModelDeployment" { ("worker.gpustack.ai", "v1alpha1") } else { ("", "v1") };
    let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let plural = format!("{}s", kind.to_lowercase());
    let mut resource = ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(group, version, kind));
    resource.api_version = api_version;
    resource.plural = plural;
    resource
}

fn absent_is_fine<T>(result: kube::Result<T>) -> Outcome<()> {
    match result {
        Ok(_) => Ok(()),
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Every Pod of a namespace, by name.
pub async fn pods(client: &Client, namespace: &str) -> Outcome<BTreeMap<String, Pod>> {
    let list = Api::<Pod>::namespaced(client.clone(), namespace).list(&ListParams::default()).await?;
    Ok(list.items.into_iter().map(|pod| (pod.metadata.name.clone().unwrap_or_default(), pod)).collect())
}
