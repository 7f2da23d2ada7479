//! Carries out what the pure parts decided, on the API server.
//!
//! Owns: requests and which of their failures mean "already so". Must not: decide. An action that fails ends the pass; the next pass
//! looks at the cluster anew.

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Client, Error, Result};
use serde_json::{Value, json};

use super::keys;
use super::plan::Action;
use super::spec::Deployment;
use super::view;

/// Everything that a pass looks at.
pub(super) struct Seen {
    pub(super) deployments: Vec<DynamicObject>,
    pub(super) pods: Vec<Pod>,
    pub(super) services: Vec<Service>,
}

/// Access to the API server, in one namespace or in all.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) client: Client,
    namespace: Option<String>,
}

impl Server {
    pub(super) fn new(client: Client, namespace: Option<String>) -> Self {
        Self { client, namespace }
    }

    /// Reads the objects of all deployments. Deployments come first, so that a Pod is never newer than the owner is known.
    pub(super) async fn read(&self) -> Result<Seen> {
        let ours = ListParams::default().labels(&format!("{}={}", keys::NAME, keys::MODEL_DEPLOYMENT));
        let deployments = match &self.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource()),
            None => Api::all_with(self.client.clone(), &resource()),
        };
        let deployments = deployments.list(&ListParams::default()).await?.items;
        let pods = self.scope::<Pod>().list(&ours).await?.items;
        let services = self.scope::<Service>().list(&ours).await?.items;
        Ok(Seen { deployments, pods, services })
    }

    fn scope<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = kube::core::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        match &self.namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }

    pub(super) fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(super) fn deployments(&self, namespace: &str) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), namespace, &resource())
    }

    /// One action of the operator. `DropWorkload` is Kueue's and does nothing here.
    pub(super) async fn carry_out(&self, deployment: &Deployment, action: &Action) -> Result<()> {
        let (namespace, owner) = (deployment.namespace.as_str(), deployment.name.as_str());
        match action {
            Action::SetSlots(slots) => {
                let text = if slots.is_empty() { Value::Null } else { json!(json!(slots).to_string()) };
                self.patch_deployment(namespace, owner, json!({"metadata": {"annotations": {keys::SLOTS: text}}})).await
            }
            Action::CreatePod(pod) => self.create_pod(namespace, pod).await,
            Action::DeletePod { name, uid } => self.delete_pod(namespace, name, uid, None).await,
            Action::DropWorkload(_) => Ok(()),
            Action::SetLabel { name, key, on } => {
                let value = if *on { json!("true") } else { Value::Null };
                let patch = Patch::Merge(json!({"metadata": {"labels": {*key: value}}}));
                absent_is_fine(self.pods(namespace).patch(name, &PatchParams::default(), &patch).await)
            }
            Action::ApplyService(service) => self.apply_service(namespace, service).await,
            Action::DeleteService(name) => {
                absent_is_fine(Api::<Service>::namespaced(self.client.clone(), namespace).delete(name, &DeleteParams::default()).await)
            }
            Action::SetStatus(status) => self.set_status(namespace, owner, status).await,
            Action::HoldDeployment(hold) => {
                let mut finalizers = deployment.finalizers.clone();
                finalizers.retain(|finalizer| finalizer != keys::DEPLOYMENT_FINALIZER);
                finalizers.extend(hold.then(|| keys::DEPLOYMENT_FINALIZER.to_owned()));
                self.patch_deployment(namespace, owner, json!({"metadata": {"finalizers": finalizers}})).await
            }
        }
    }

    /// Deletes with a UID precondition; a Pod that is gone or of another UID is fine.
    pub(super) async fn delete_pod(&self, namespace: &str, name: &str, uid: &str, grace: Option<u32>) -> Result<()> {
        let preconditions = Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None });
        let parameters = DeleteParams { grace_period_seconds: grace, preconditions, ..DeleteParams::default() };
        match self.pods(namespace).delete(name, &parameters).await {
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            result => absent_is_fine(result),
        }
    }

    /// Takes the admission gate off and binds the Pod to a node, as Kueue and a scheduler do.
    pub(super) async fn admit(&self, pod: &Pod, node: &str) -> Result<()> {
        let name = view::name(pod);
        let pods = self.pods(pod.metadata.namespace.as_deref().unwrap_or_default());
        if view::is_gated(pod) {
            let patch = Patch::Merge(json!({"spec": {"schedulingGates": []}}));
            pods.patch(name, &PatchParams::default(), &patch).await?;
        }
        if pod.spec.as_ref().is_none_or(|spec| spec.node_name.is_none()) {
            let binding =
                json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"kind": "Node", "name": node}});
            let _: Value = pods.create_subresource("binding", name, &PostParams::default(), &binding).await?;
        }
        Ok(())
    }

    /// Takes Kueue's finalizer off.
    pub(super) async fn release(&self, pod: &Pod) -> Result<()> {
        let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
        finalizers.retain(|finalizer| finalizer != keys::POD_FINALIZER);
        // The UID keeps the patch from hitting a later Pod of the same name.
        let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers, "uid": view::uid(pod)}}));
        let pods = self.pods(pod.metadata.namespace.as_deref().unwrap_or_default());
        match pods.patch(view::name(pod), &PatchParams::default(), &patch).await {
            Err(Error::Api(status)) if status.code == 409 => Ok(()),
            result => absent_is_fine(result),
        }
    }

    /// Changes a deployment by a merge patch.
    pub(super) async fn patch_deployment(&self, namespace: &str, name: &str, patch: Value) -> Result<()> {
        absent_is_fine(self.deployments(namespace).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await)
    }

    async fn create_pod(&self, namespace: &str, pod: &Value) -> Result<()> {
        let pod: Pod = serde_json::from_value(pod.clone()).map_err(Error::SerdeError)?;
        self.pods(namespace).create(&PostParams::default(), &pod).await.map(drop)
    }

    async fn apply_service(&self, namespace: &str, wanted: &Value) -> Result<()> {
        let services = Api::<Service>::namespaced(self.client.clone(), namespace);
        let service: Service = serde_json::from_value(wanted.clone()).map_err(Error::SerdeError)?;
        let name = service.metadata.name.clone().unwrap_or_default();
        match services.get_opt(&name).await? {
            None => services.create(&PostParams::default(), &service).await.map(drop),
            Some(standing) => {
                let mut next = standing;
                if let (Some(spec), Some(wanted)) = (next.spec.as_mut(), service.spec) {
                    spec.selector = wanted.selector;
                    spec.ports = wanted.ports;
                }
                next.metadata.annotations = service.metadata.annotations;
                services.replace(&name, &PostParams::default(), &next).await.map(drop)
            }
        }
    }

    async fn set_status(&self, namespace: &str, name: &str, status: &Value) -> Result<()> {
        let deployments = self.deployments(namespace);
        let Some(mut object) = deployments.get_opt(name).await? else { return Ok(()) };
        object.data["status"] = status.clone();
        absent_is_fine(deployments.replace_status(name, &PostParams::default(), &object).await)
    }
}

/// ModelDeployments as the CRD serves them.
pub(crate) fn resource() -> ApiResource {
    ApiResource {
        group: "worker.gpustack.ai".into(),
        version: "v1alpha1".into(),
        api_version: "worker.gpustack.ai/v1alpha1".into(),
        kind: "ModelDeployment".into(),
        plural: "modeldeployments".into(),
    }
}

/// What should go and is not there needs no more doing.
pub(super) fn absent_is_fine<T>(result: Result<T>) -> Result<()> {
    match result {
        Err(Error::Api(status)) if status.code == 404 => Ok(()),
        result => result.map(drop),
    }
}
