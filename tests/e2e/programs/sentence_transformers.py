"""`Transformer` and `Pooling` over the directory: the embeddings of two texts."""

PACKAGE, EQUAL = "sentence-transformers", "embeddings"
REQUIRES = ["certifi==2026.10.18", "charset-normalizer==3.5.2", "cloudpickle==3.1.2", "joblib==1.6.0", "narwhals==2.29.0", "requests==2.34.2",
            "scikit-learn==1.9.1", "scipy==1.17.1", "sentence-transformers==6.2.0", "threadpoolctl==3.8.0",
            "urllib3==2.8.0"]


def read(directory, scratch):
    from sentence_transformers import SentenceTransformer

    return {"embeddings": SentenceTransformer(directory, device="cpu").encode(["w1 w2 w3", "w4"], convert_to_tensor=True)}
