"""scikit-learn in ordinary use: estimators, pipelines and metrics on arrays."""

import sys

import numpy as np
from sklearn import metrics
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.cluster import DBSCAN, KMeans
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestClassifier
from sklearn.feature_selection import SelectKBest, f_classif
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge, SGDClassifier
from sklearn.mixture import GaussianMixture
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, train_test_split
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    OneHotEncoder,
    PolynomialFeatures,
    StandardScaler,
)
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

SIZES = (120, 4_100)


def show(name, *values):
    print(name, *[np.array2string(np.asarray(x), precision=5, threshold=6) for x in values])


class Centred(BaseEstimator, TransformerMixin):
    """An estimator of the user's own."""

    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return self

    def transform(self, X):
        return X - self.mean_


def data(n):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(n, 4))
    y = (X[:, 0] + 0.5 * X[:, 1] > 0).astype(int)
    return X, y


def regress(n):
    X, _ = data(n)
    target = X @ np.array([1.0, -2.0, 0.5, 0.0]) + 3
    for model in (LinearRegression(), Ridge(alpha=0.1)):
        model.fit(X, target, sample_weight=np.ones(n))
        show(type(model).__name__, model.coef_.round(4), model.intercept_, model.score(X, target))
    trees = HistGradientBoostingRegressor(max_iter=5, random_state=0).fit(X, target)
    found = trees.predict(X)
    show("metrics", metrics.r2_score(target, found), metrics.mean_squared_error(target, found))
    process = GaussianProcessRegressor(optimizer=None).fit(X[:20], target[:20])
    show("process", process.predict(X[:3], return_std=True)[0].round(3))


def classify(n):
    X, y = data(n)
    train, test, y_train, y_test = train_test_split(
        X, y, test_size=0.25, random_state=0, stratify=y
    )
    show("split", train.shape, test[0], y_test[:5])
    for model in (
        LogisticRegression(),
        GaussianNB(),
        KNeighborsClassifier(3),
        DecisionTreeClassifier(max_depth=3, random_state=0),
        RandomForestClassifier(5, max_depth=3, random_state=0),
        SGDClassifier(random_state=0),
        make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression(C=10)),
        make_pipeline(Centred(), FunctionTransformer(np.tanh), GaussianNB()),
        make_pipeline(SelectKBest(f_classif, k=2), PCA(2), GaussianNB()),
    ):
        model.fit(train, y_train)
        found = model.predict(test)
        show(type(model).__name__, (found == y_test).mean(), metrics.f1_score(y_test, found))
    support = SVC().fit(train[:200], y_train[:200])
    show("SVC", support.decision_function(test[:3]))
    show("kernel", SVC(kernel=lambda a, b: a @ b.T).fit(train[:90], y_train[:90]).predict(test[:9]))
    model = GaussianNB().fit(train, y_train)
    chance = model.predict_proba(test)[:, 1]
    show("auc", metrics.roc_auc_score(y_test, chance), metrics.log_loss(y_test, chance))
    show("confusion", metrics.confusion_matrix(y_test, model.predict(test)))
    show("scores", cross_val_score(model, X, y, cv=KFold(3)), metrics.accuracy_score(y, y[::-1]))
    search = GridSearchCV(LogisticRegression(), {"C": np.array([0.1, 1.0])}, cv=3).fit(X, y)
    show("search", search.best_params_["C"], search.best_score_)


def transform(n):
    X, y = data(n)
    holes = X.copy()
    holes[::7, 0] = np.nan
    show("impute", SimpleImputer().fit_transform(holes)[:2])
    scaler = StandardScaler().fit(X)
    show("scale", scaler.transform(X).std(axis=0), scaler.inverse_transform(X[:1]))
    show("pca", np.abs(PCA(2, random_state=0).fit_transform(X))[0].round(4))
    show("svd", TruncatedSVD(2, random_state=0).fit(X).singular_values_)
    show("codes", OneHotEncoder().fit_transform(y[:, None]).toarray()[:2])
    groups = KMeans(3, n_init=2, random_state=np.random.RandomState(0)).fit(X)
    show("kmeans", np.sort(np.bincount(groups.labels_)), groups.inertia_)
    show("own", Centred().fit_transform(X).mean(axis=0).round(6))
    show("density", np.unique(DBSCAN(eps=0.8).fit_predict(X[:200])))
    show("mixture", GaussianMixture(2, random_state=0).fit(X).weights_.round(3))
    distances = metrics.pairwise_distances(X[:50], X[:40], metric="cityblock")
    show("pairwise", distances.sum(), metrics.pairwise.cosine_similarity(X[:3]))
    own = metrics.pairwise_distances(X[:5], metric=lambda a, b: np.abs(a - b).max())
    show("own metric", own.sum(), metrics.pairwise.rbf_kernel(X[:3], X[:3]))
    show("silhouette", metrics.silhouette_score(X[:200], groups.labels_[:200]))


def main():
    for n in map(int, sys.argv[1:] or SIZES):
        print(f"--- {n} samples")
        regress(n)
        classify(n)
        transform(n)


if __name__ == "__main__":
    main()
